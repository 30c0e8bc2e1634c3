"""The console in Chinese: dead letters, blocked keys, and what is due later."""

DEAD_LETTERS: dict[str, str] = {
    "Blocked keys": "被阻塞的键",
    "Held back": "被阻塞",
    "By": "原因",
    "Until": "直到",
    "none: the shard itself": "无: 整个分片",
    "under way at {name}": "{name} 处理中",
    "Due, by the hour, UTC: messages that wait for their time, and retries (↻).": (
        "按小时 (UTC) 到期: 等待时间的消息, 以及重试 (↻)。"
    ),
    "Known until {time}.": "已知至 {time}。",
    "{n} are due later.": "{n} 条更晚到期。",
    "Due in the hour from {time} on": "自 {time} 起一小时内到期",
    "The clock of this local service": "本地服务的时钟",
    "It is {time}. Move it forward, and what is due on the way happens; it never goes back.": (
        "现在是 {time}。向前拨动, 途中到期的都会发生; 不能往回。"
    ),
    "a minute": "一分钟",
    "Hours forward, 1 to 168": "向前小时数, 1 至 168",
    "Move the clock": "拨动时钟",
    "The clock was moved; what was due on the way happened.": "时钟已拨动; 途中到期的已发生。",
    "Many at once": "批量处理",
    "Canary": "金丝雀",
    "Export as JSON lines": "导出为 JSON Lines",
    "up to {n}": "最多 {n} 条",
    "Mend by a JSON merge patch": "用 JSON 合并补丁修改",
    "What the patch names is set, null removes it; all else stays, to the digit.": (
        "补丁中的成员被设置, null 表示删除; 其余原样保留, 数字不变。"
    ),
    "Patch, a JSON object": "补丁 (JSON 对象)",
    "Show what it would change": "预览改动",
    "Of {n} letters on this page {m} would change.": "本页 {n} 条死信中 {m} 条会改变。",
    "{n} hold no JSON, and stay as they are.": "{n} 条不是 JSON, 保持原样。",
    "Change these {n}": "修改这 {n} 条",
    "The patch is no JSON object:": "补丁不是 JSON 对象:",
    "{n} dead letters have their new bodies.": "{n} 条死信已更新。",
    "Next page of letters": "下一页死信",
    "Send again at a rate": "限速重投",
    "A step sends so many; with script, one step follows another until you stop it.": (
        "每一步投递这么多; 启用脚本时自动逐步进行, 直到你停止。"
    ),
    "Letters a step": "每步条数",
    "Seconds between steps": "步间秒数",
    "Set": "设定",
    "Send the next {n}": "投递接下来的 {n} 条",
    "Go on by itself": "自动继续",
    "Stop": "停止",
    "{n} are left.": "剩余 {n} 条。",
    "First one letter is sent again, then ten, then the rest. It stops at the first failure.": (
        "先重投一条, 再十条, 再其余全部。首次失败即停止。"
    ),
    "Send one": "投递一条",
    "Send ten": "投递十条",
    "Send the rest, {n}": "投递其余 {n} 条",
    "No dead letter is left to be sent.": "没有可投递的死信。",
    "It failed again: nothing more is sent.": "再次失败: 不再投递。",
    "All of them succeeded.": "全部成功。",
    "Nobody has tried them all yet.": "尚未全部尝试。",
    "succeeded": "成功",
    "failed": "失败",
    "on its way": "投递中",
    "Begin anew": "重新开始",
}
