"""The console in Chinese, what is done with many dead letters at once."""

FAILURES: dict[str, str] = {
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
    "Send the rest": "投递其余全部",
    "No dead letter is left to be sent.": "没有可投递的死信。",
    "It failed again: nothing more is sent.": "再次失败: 不再投递。",
    "All of them succeeded.": "全部成功。",
    "Nobody has tried them all yet.": "尚未全部尝试。",
    "succeeded": "成功",
    "failed": "失败",
    "on its way": "投递中",
    "Begin anew": "重新开始",
}
