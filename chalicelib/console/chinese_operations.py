"""The console in Chinese, the pages of those who run it: subscribers, tokens, audit, replays, archive."""

OPERATIONS: dict[str, str] = {
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
