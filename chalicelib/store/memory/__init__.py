"""The ports in memory: for tests and simulations, kept honest by the suite that DynamoDB passes too."""

from .audit import MemoryAudit
from .blobs import MemoryBlobs
from .control import MemoryControl
from .cursors import MemoryCursors
from .keys import MemoryKeys
from .log import MemoryLog
from .marks import MemoryMarks
from .readings import MemoryReadings
from .records import MemoryRecords
from .rounds import MemoryRounds
from .tables import MemoryTables
from .tickets import MemoryTickets
from .timers import MemoryTimers
from .token_buckets import MemoryTokenBuckets
from .traces import MemoryTraces
from .transactions import MemoryTransactions

__all__ = [
    "MemoryAudit",
    "MemoryBlobs",
    "MemoryControl",
    "MemoryCursors",
    "MemoryKeys",
    "MemoryLog",
    "MemoryMarks",
    "MemoryReadings",
    "MemoryRecords",
    "MemoryRounds",
    "MemoryTables",
    "MemoryTickets",
    "MemoryTimers",
    "MemoryTokenBuckets",
    "MemoryTraces",
    "MemoryTransactions",
]
