"""The console in Chinese: what is wrong with a field. The first pattern that fits the API's words says it."""

_KINDS = {
    "int": "整数",
    "float": "数字",
    "str": "文字",
    "bool": "true 或 false",
    "array": "列表",
    "object": "JSON 对象",
    "null": "null",
}


def _expected_patterns(rest: str, phrase: str) -> list[tuple[str, str]]:
    """The same for each kind of value."""
    return [(rf"Expected `{kind}{rest}", f"须为{word}{phrase}") for kind, word in _KINDS.items()]


ISSUES: list[tuple[str, str]] = [
    (r"is missing", "必填"),
    (r"unknown field|unknown option|unknown query parameter", "没有这个字段"),
    (r"must be a number", "须为数字"),
    (r"must be a number from (\S+) to (\S+)", r"须为 \1 到 \2 的数字"),
    (r"must have 1 to (\d+) characters", r"须为 1 到 \1 个字符"),
    (r"must be one of (.*)", r"须为其中之一: \1"),
    (r"must match (.*)", r"须符合 \1"),
    (r"must be JSON, such as (\{.*?\})\. .*", r"须为合法的 JSON, 例如 \1"),
    (r"must be one `Name: value` a line", "每行须为一个 `名称: 值`"),
    (r"must be a time like (.*)", r"须为时间, 例如 \1"),
    (r"must be (.*), an offset or a time like (.*)", r"须为 \1、一个偏移量, 或时间, 例如 \2"),
    (r"must be '\*' or up to (\d+) tags joined by ' \|\| '", r"须为 '*', 或用 ' || ' 连接的最多 \1 个标签"),
    (r"must be base64", "须为 base64"),
    (r"must be a day like (.*)", r"须为日期, 例如 \1"),
    (r"must be later than from", "须晚于起始时间"),
    (r"must be a shard's number", "须为分片编号"),
    (r"must not be blank, and have no control characters", "不能为空白, 也不能含控制字符"),
    (r"must have no spaces, no control characters and no \|", "不能含空格、控制字符和 |"),
    (r"names must have 1 to (\d+) letters, digits or (.*)", r"名称须为 1 到 \1 个字母、数字或 \2"),
    (r"must have no line breaks and no other control characters", "不能含换行和其他控制字符"),
    (
        r"must have 1 to 128 letters, digits, (.*)",
        "须为 1 到 128 个字母、数字、.、_ 或 -, 可用 * 代表任意多个",
    ),
    (r"must have printable ASCII characters only", "只能含可打印的 ASCII 字符"),
    *_expected_patterns(r"` of length >= (\S+)", r", 至少 \1 项或字符"),
    *_expected_patterns(r"` of length <= (\S+)", r", 最多 \1 项或字符"),
    *_expected_patterns(r"` >= (\S+)", r", 不小于 \1"),
    *_expected_patterns(r"` <= (\S+)", r", 不大于 \1"),
    *_expected_patterns(r"`, got `.*`", ""),
    (r"Expected `(.*)`, got `.*`", r"须为 \1 之一"),
]
