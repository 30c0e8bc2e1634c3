"""The console in Chinese, trying it, and where a message is."""

TRY: dict[str, str] = {
    "Open its page": "打开其页面",
    "Undo": "撤销",
    "Fate": "去向",
    "Where is it?": "它在哪里?",
    "The sums agree: for each group it is in one place.": "总数一致: 对每个消费组, 它只在一处。",
    "It was found in no place for some group, though we looked several times. Please tell us.": (
        "多次查看后, 对某个消费组仍找不到它。请告知我们。"
    ),
    "Every group is done with it.": "所有消费组都已处理完。",
    "Where it is": "所在",
    "From before a seek": "重置位置之前的",
    "No group is owed it.": "没有消费组应收到它。",
    "It is not in the log yet: no group can have it.": "它尚未进入日志, 没有消费组能得到它。",
    "Try it": "试一试",
    "A button makes a topic and a group, and sends three messages: two of the key red, one of blue.": (
        "按钮创建该模式的主题和消费组, 并发送三条消息: 两条键为 red, 一条键为 blue。"
    ),
    "Many are under way at once; whoever asks gets the next ones.": "同时处理多条; 谁来取, 谁得到后面的消息。",
    "In order for each key: the second red one waits for the first, blue does not.": (
        "每个键按顺序: 第二条 red 等待第一条, blue 不等。"
    ),
    "Each of two consumers gets every message.": "两个消费者都收到每条消息。",
    "Try {mode}": "试 {mode}",
    "Nothing could be received at this moment.": "此刻没有可接收的消息。",
    "{n} received and settled.": "已接收并处理 {n} 条。",
    "A message's page shows its trace, as it grows.": "消息页实时显示它的轨迹。",
    "Receive and acknowledge": "接收并确认",
    "Receive and fail, again in 5 s": "接收并失败, 5 秒后重试",
    "Receive and give up": "接收并放弃",
    "Send a test message, and watch it": "发送一条测试消息并观察",
}
