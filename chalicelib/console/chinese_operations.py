"""The console in Chinese, the pages of those who run it: subscribers, tokens, audit, replays, archive."""

OPERATIONS: dict[str, str] = {
    "Part of the name": "名称包含",
    "No token here has such a name.": "本页没有这样名称的令牌。",
    "Today, UTC": "今天 (UTC)",
    "Write units": "写单位",
    "Cost, USD": "费用 (美元)",
    "Reckoned from the meters: from all in batches of a hundred to all one by one, at prices of us-east-1.": (
        "按计数估算: 从全部百条一批到全部逐条, 按 us-east-1 价格。"
    ),
    "What AWS charged is on its bill; on this machine nothing is charged.": "实际费用见 AWS 账单; 本机不收费。",
    "Comes every": "周期",
    "Late": "延迟",
    "no": "否",
    "nothing to do yet": "尚无任务",
    "A round is noted where there was something to do: a stage at rest writes nothing.": (
        "有事可做时才记录一轮: 空闲的环境不写入任何内容。"
    ),
    "The buttons as curl": "这些按钮的 curl 命令",
    "Something is wrong.": "有问题。",
    "Also in trouble, counted at the next looks:": "另有问题, 将在下次查看时计数:",
    "dead letters": "死信",
    "over the alarm": "超过告警值",
    "nobody at work": "无人处理",
    "retrying": "重试中",
    "Done": "已完成",
    "Not done with all of them": "未全部完成",
    "{n} refused:": "{n} 项被拒绝:",
    "Undo puts back what was there before.": "撤销会恢复之前的内容。",
    "{n} messages": "{n} 条消息",
    "{n} messages changed.": "已更改 {n} 条消息。",
    "and {n} more": "以及另外 {n} 条",
    "There are more than {n}: do it with these, then come back for the rest.": (
        "多于 {n} 条: 先处理这些, 再回来处理其余。"
    ),
    "They enter the log at once. This cannot be undone.": "它们立即进入日志, 不可撤销。",
    "Deliver these {n} now": "立即投递这 {n} 条",
    "Each by as much, so that they keep their distances.": "每条推迟同样的时间, 间隔不变。",
    "10 minutes": "10 分钟",
    "a week": "一周",
    "Seconds later; less than 0: sooner": "推迟秒数; 小于 0 为提前",
    "No group gets them. This cannot be undone.": "任何消费组都收不到它们, 不可撤销。",
    "Cancel these {n}": "取消这 {n} 条",
    "Those that are ticked; all of them where none is.": "已勾选的; 未勾选则为全部。",
    "A batch without messages, sent now: nothing comes of it but the answer.": (
        "立即发送一个不含消息的批次: 除了回答, 没有任何后果。"
    ),
    "It pulls: nobody calls it. Its last sign of life:": "它主动拉取, 不被调用。最近心跳:",
    "Its owner has not agreed yet to be called; nothing is sent.": "地址的所有者尚未同意被调用; 不会发送任何内容。",
    "It is called no more, until it is registered again.": "不再调用它, 直到重新注册。",
    "The group is paused: it gets nothing.": "消费组已暂停: 它收不到消息。",
    "It failed too often: its circuit is open, nothing is sent until the next probe,": (
        "失败过多: 熔断器已断开, 在下次探测之前不发送, "
    ),
    "Its circuit lets one message through, to see whether it works again.": "熔断器放行一条消息, 看它是否恢复。",
    "It is called, and its circuit is closed.": "正常调用, 熔断器闭合。",
    "it did nothing but fail for days.": "数天以来它只有失败。",
    "Half took at most": "半数耗时不超过",
    "95 % took at most": "95% 耗时不超过",
    "Failing since": "失败始于",
    "Circuit opened": "熔断次数",
    "Latest attempts": "最近的尝试",
    "{n} attempts, the newest right; green ones succeeded": "{n} 次尝试, 最新在右; 绿色为成功",
    "Began": "开始",
    "Outcome": "结果",
    "Took": "耗时",
    "No attempt yet.": "尚无尝试。",
    "There may be others: these are at the end of each shard's log.": "可能还有其他: 这里是各分片日志末尾的尝试。",
    "A retry of a message further back is in that message's trace.": "更早消息的重试见该消息的轨迹。",
    "Test": "测试",
    "A signed event of the type headrace.test, sent now. It is no message: nothing comes of it but the answer.": (
        "立即发送一个类型为 headrace.test 的签名事件。它不是消息: 除了回答, 没有任何后果。"
    ),
    "Send a test": "发送测试",
    "Send again what failed since": "重新投递某时刻以来的失败",
    "The group's dead letters of that time and later. What is being retried comes by itself.": (
        "该时刻及之后的死信。正在重试的会自行再来。"
    ),
    "Send them again": "重新投递",
    "Signing secret": "签名密钥",
    "The old secret signs, too, until": "旧密钥同时签名, 直到",
    "The old one signs for": "旧密钥继续签名",
    "a day more": "再一天",
    "an hour more": "再一小时",
    "a week more": "再一周",
    "no longer": "立即停止",
    "How to verify": "如何验证",
    "Each request is signed as Standard Webhooks want it; the libraries of that name do the same.": (
        "每个请求都按 Standard Webhooks 签名; 同名的库可做同样的验证。"
    ),
    "Register it again": "重新注册",
    "Its owner is asked anew; its secret stays.": "将再次询问其所有者; 密钥不变。",
    "Its shards go to the others at once; in a broadcast its position is lost.": (
        "其分片立即归其他消费者; 广播中它的位置会丢失。"
    ),
    "It took the test.": "它接受了测试。",
    "It would not have taken a message.": "它不会接受消息。",
    "Sent": "发出",
    "Answered": "回答",
    "What it said beside that is for tokens with the scope admin.": "其余回答内容只对具有 admin 权限的令牌显示。",
    "Nothing.": "没有。",
    "Send another": "再发一次",
    "Ends in, days": "有效期 (天)",
    "What it did": "它做过什么",
    "Rotate": "轮换",
    "The old text stays good for": "旧令牌继续有效",
    "A rotated token gets a new text, shown once. When a token was used is known to the hour.": (
        "轮换后得到新令牌, 只显示一次。最近使用时间精确到小时。"
    ),
    "This link was used, or its minute is over: make another, or paste a token.": (
        "此链接已用过, 或已超过一分钟: 请再生成一个, 或粘贴令牌。"
    ),
    "A link that signs you in:": "登录链接:",
    "Archive": "归档",
    "Messages by day, UTC. Green: all of the day is there. Pale: more may come. Red: some were found nowhere.": (
        "按接收日 (UTC) 的消息数。绿色: 当天全部都在。浅色: 可能还有。红色: 有些找不到。"
    ),
    "archived until {time}": "归档至 {time}",
    "{n} attempts archived": "归档 {n} 次尝试",
    "{n} objects could not be read": "{n} 个对象无法读取",
    "{n} large bodies were not there": "{n} 个大消息体不存在",
    "Nothing is archived of these days.": "这些天没有归档。",
    "On this machine, while the service runs:": "在本机, 服务运行时:",
    "On AWS, each night:": "在 AWS 上, 每晚:",
    "in the stage's environment, then": "写入环境配置, 然后",
    "Once, by hand:": "手动一次:",
    "Messages leave the log only when the archive has proved that it has them.": "只有归档证明已有的消息才会离开日志。",
    "Messages leave the log after their retention, archived or not: HEADRACE_ARCHIVE is not set.": (
        "消息过了保留期就离开日志, 不论是否归档: 未设置 HEADRACE_ARCHIVE。"
    ),
    "Today": "今天",
    "Earlier days": "更早的日子",
    "Replays": "重放",
    "Of the time": "时间范围",
    "Which": "哪些",
    "Into": "到",
    "Matched": "匹配",
    "Changed": "更新于",
    "only counts": "只计数",
    "sent of those that matched": "已发送 / 匹配",
    "Nothing was replayed yet.": "尚无重放。",
    "Send archived messages again": "重新发送归档的消息",
    "What is archived": "归档内容",
    "Each comes as a new message, once per replay, marked with where it is from.": (
        "每条作为新消息到来, 每次重放只一次, 并标明来源。"
    ),
    "Where, as: total > 100 AND country = 'FI'": "条件, 例如: total > 100 AND country = 'FI'",
    "Into another topic": "到另一主题",
    "For one group only": "只给一个消费组",
    "Messages a second": "每秒消息数",
    "{n} messages at most": "最多 {n} 条消息",
    "so many are archived of these days. Hours, tag, key and where leave fewer; a count says how many.": (
        "这些天共归档这么多。时刻、标签、键和条件会使其更少; 计数可得确数。"
    ),
    "Only the last two weeks of the span were looked at.": "只查看了时间范围的最后两周。",
    "not archived": "未归档",
    "Only count": "只计数一次",
    "Replay": "重放消息",
    "Made. Where jobs run by themselves its job begins now; elsewhere run the command beside it.": (
        "已建立。作业自动运行处即刻开始; 否则请运行旁边的命令。"
    ),
    "Audit": "审计",
    "Every call that changed something, or tried to, for 90 days. What was done for one message is in its trace.": (
        "90 天内每个作出或尝试更改的调用。单条消息的经过见其轨迹。"
    ),
    "Token, its id": "令牌 ID",
    "When": "时间",
    "Call": "调用",
    "On what": "对象",
    "Result": "结果",
    "From where": "来源",
    "No entry fits.": "没有匹配的记录。",
}
