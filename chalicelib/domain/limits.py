"""Every limit of the public contract and of the storage layout, in one place (see docs/limits.md)."""

from __future__ import annotations

from datetime import timedelta

from . import times

# Requests
MAX_REQUEST_BYTES = 10 * 1024 * 1024  # API Gateway's; also of what a compressed one unpacks to
MAX_JSON_DEPTH = 32
MAX_EXPONENT = 9_999  # of a zero, or of a number too small for a double
MAX_BATCH = 1000
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_PAGE = 200
DEFAULT_PAGE = 32  # RocketMQ's default for a query by key

# Messages
MAX_BODY_BYTES = 4 * 1024 * 1024
BLOB_THRESHOLD_BYTES = 200 * 1024  # a larger body goes to the blob store, the segment holds a reference
MAX_KEYS = 16
MAX_KEY_CHARS = 256
MAX_TAG_CHARS = 128
MAX_TENANT_CHARS = 128
MAX_HEADERS = 32
MAX_HEADER_NAME_CHARS = 128
MAX_HEADER_VALUE_CHARS = 1024
MAX_HEADERS_BYTES = 32 * 1024  # in UTF-8
MAX_CONTENT_TYPE_CHARS = 256
MAX_DEDUP_ID_CHARS = 128
MAX_JOB_BYTES = 256
MAX_ID_CHARS = 128
MAX_REASON_CHARS = 512

# Topics and groups
MAX_SHARDS = 256  # of one priority: the next more urgent one has numbers from the next multiple of it
MAX_PRIORITIES = 4
SHARD_NUMBERS = MAX_SHARDS * MAX_PRIORITIES
MAX_ATTEMPTS = 1000
DEFAULT_MAX_ATTEMPTS = 16
MAX_LADDER_STEPS = 64
MAX_RETRY_SECONDS = 30 * times.DAY_SECONDS  # a ladder's step, a nack's delay, a subscriber's Retry-After
MAX_LEASE_SECONDS = 12 * times.HOUR_SECONDS
MAX_DEDUP_WINDOW_SECONDS = 30 * times.DAY_SECONDS
MAX_DELAY_SECONDS = 10 * 365 * times.DAY_SECONDS
MAX_FILTER_TAGS = 32
MAX_POINTERS = 16  # of `redact`
MAX_POINTER_CHARS = 256
MAX_RATE_LIMIT = 1_000_000  # messages a second
MAX_OFFSET = 10**15  # the store keeps sixteen digits, and a JSON number is exact up to 2**53
MAX_IN_FLIGHT = 10_000
MAX_TOPIC_PATTERNS = 32
MAX_CONSUMERS = 1000  # of a group, online: each change of who is online deals the shards to all of them
MIN_CONSUMER_EXPIRY_SECONDS = 60
MAX_CONSUMER_EXPIRY_SECONDS = 365 * times.DAY_SECONDS
MAX_INSTANCE_CHARS = 128
MAX_TOKEN_DAYS = 3650
AUDIT_DAYS = 90
MAX_AUDIT_LOOKS = 1000  # entries that a page with filters looks at
MAX_OVERLAP_SECONDS = 7 * times.DAY_SECONDS
MAX_OVERLAPPING_SECRETS = 8

# Receiving
MAX_RECEIVE = 1000  # of one receive; spans and trace rows are built for it, too
DEFAULT_RECEIVE = 10
MAX_RECEIVE_ID_CHARS = 64
MAX_RECEIVE_WAIT_SECONDS = 20
MAX_RECEIPTS = 1000
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # bodies and fields of one answer; in base64 still below Lambda's 6 MB
CONSUMER_OFFLINE_AFTER_MS = 30 * times.SECOND_MS  # DMQ's heartbeat interval

# Delivery
MAX_CALLS = 256  # under way at once in one process of a group's delivery
MAX_BYTES_UNDER_WAY = 64 * 1024 * 1024  # about; of the bodies of these calls
MAX_URL_CHARS = 2048
MAX_REPLY_HEADER_BYTES = 16 * 1024
MAX_REPLY_BYTES = 64 * 1024
NEVER_RETRY_STATUS = 489
MAX_FUNCTION_SECONDS = 900  # Lambda's
MAX_TIMEOUT_SECONDS = 840  # of a consumer's call: `deliver_slow` has 900 for that, a start and a settlement
DEFAULT_URL_SECONDS = 30  # of a call to a URL
MAX_QUICK_SECONDS = 60  # of a consumer that `deliver` calls
MAX_SLOW_IN_FLIGHT = 25  # of a group with a slow consumer: a quarter of what `deliver_slow` may run at once
MAX_STATIC_HEADERS = 16  # of a URL
MAX_STATIC_HEADER_BYTES = 3_500  # together, with their names: KMS encrypts up to 4 KB
MAX_REJECT_STATUSES = 64
MAX_BATCH_WAIT_SECONDS = 20
FUNCTION_START_SECONDS = 10  # Lambda's time for a cold start, not counted in the function's own
ROTATION_OVERLAP = timedelta(days=1)
BREAKER_OPEN_MS = 5 * times.SECOND_MS  # at first; twice as long each time in a row
BREAKER_LONGEST_OPEN_MS = 5 * times.MINUTE_MS
MAX_REDRIVE = 10_000
DISABLE_AFTER_MS = 5 * times.DAY_MS  # of failures only

# Transactions
MAX_CHECKS = 15  # RocketMQ's
DEFAULT_CHECK_AFTER_SECONDS = 60
MAX_CHECK_AFTER_SECONDS = times.DAY_SECONDS
CHECK_TIMEOUT = timedelta(seconds=10)

# Handshakes
MAX_CALLBACK_HOSTS = 16  # of a group
MAX_HANDSHAKES = 600  # with one host in an hour, half of them at once, for all consumers together

MAX_METERED_GROUPS = 50  # of a stage: each has four metrics of its own, at 0.30 USD a month

# Replays
MAX_WHERE_CHARS = 2000
DEFAULT_REPLAY_RATE = 100  # messages a second
MAX_REPLAY_RATE = 10_000
MAX_COUNT = 10**15  # of messages, in a number that any JSON reader keeps
REPLAY_LIFE = timedelta(days=7)  # how long a replay's job may be run again; below the longest dedup window

# Storage
MAX_SEGMENT_BYTES = 380_000  # DynamoDB's item limit is 400 KB; keys and attributes need room
MAX_CURSOR_BYTES = 8 * 1024  # of one cursor's item: what each of its writes is billed by
MAX_AMENDED_RANGES = 32  # of offsets that a cursor notes as changed in the log; beyond that, they are merged
MAX_AMENDED_CURSORS = 95  # a transaction takes 100 actions, one is the log's row
MAX_AMENDED_BYTES = 400_000  # of a segment in which a message was changed: DynamoDB's limit, nearly
MAX_PASSED_OVER = 128  # messages of busy ordering keys that one SERIAL claim skips
COMPRESS_ABOVE_BYTES = 100  # JMQ compresses above 100 bytes
HOLE_AGE = timedelta(seconds=5)  # how long a consumer waits at a reserved but unwritten offset
LATE_WRITER = timedelta(hours=1)  # no put arrives later than this after it was begun
MAX_HOLE = 2 * MAX_BATCH  # a longer gap is no missing write but expired rows
TAIL_TRUST = timedelta(minutes=5)
MAX_LOOK_BACK_ROWS = 16_384  # of a shard, read to find the rows of an earlier try of a request
MAX_RESEND_SECONDS = times.DAY_SECONDS
RESEND_SLACK_MS = 5 * times.SECOND_MS  # how long a repeat may be on its way to the service, and clocks differ
MIN_RETENTION = timedelta(hours=1)  # rows are there for two days all the same
TAIL_SURE = timedelta(days=1)  # no row expires sooner: behind a younger row none can be missing
RETENTION_GRACE = timedelta(days=1)  # a row outlives its retention by this, for dead letters to be made
MAX_LOOK_BYTES = 4 * 1024 * 1024  # of drafts that one read takes from a fragment or a shard, about
LOSSES_BEFORE_RESERVING = 6  # conflicts in a row on a shard the writer can't leave
