"""The columns of the archive's tables: their types, and what each holds. The deployment and the jobs read them here."""

MESSAGES, DELIVERIES = "messages", "deliveries"

_TOPIC = {
    "topic": ("string", "the topic's name"),
    "topic_uid": ("string", "the topic's identity: a topic created again has another one"),
}
_PLACE = {
    "shard": ("int", "the shard of the topic"),
    "offset": ("bigint", "the place in the shard: from 0, without gaps"),
    "id": ("string", "the message's id"),
}
COLUMNS = {
    MESSAGES: {
        **_TOPIC,
        **_PLACE,
        "accepted_at": ("timestamp", "when the message was accepted, UTC; its day is the partition"),
        "tag": ("string", "as sent"),
        "keys": ("array<string>", "as sent"),
        "ordering_key": ("string", "as sent"),
        "headers": ("map<string,string>", "as sent"),
        "content_type": ("string", "of the body, as sent"),
        "body": ("binary", "the bytes as sent"),
        "tenant": ("string", "as sent"),
    },
    DELIVERIES: {
        **_TOPIC,
        "group": ("string", "the group's name"),
        "group_uid": ("string", "the group's identity: a group created again has another one"),
        **_PLACE,
        "attempt": ("int", "from 1"),
        "consumer": ("string", "the consumer that tried it"),
        "started_at": ("timestamp", "when the attempt began, UTC; its day is the partition"),
        "duration_ms": ("bigint", "how long the attempt took"),
        "outcome": ("string", "SUCCESS, RETRY, DEAD or LAPSED (the lease ran out)"),
        "detail": ("string", "the reason of the outcome"),
    },
}
"""By table and column: the type, as Hive and Spark write it, and a comment."""
