"""The only package that knows DynamoDB. Start reading at `layout`; each module keeps one kind of thing."""

from .audit import Audit as Audit
from .control import Control as Control
from .cursors import Cursors as Cursors
from .dedup import Tickets as Tickets
from .dynamo import Dynamo as Dynamo
from .keys import Keys as Keys
from .log import Log as Log
from .marks import Marks as Marks
from .marks import Readings as Readings
from .marks import Rounds as Rounds
from .records import Records as Records
from .timers import Timers as Timers
from .token_buckets import TokenBuckets as TokenBuckets
from .traces import Traces as Traces
from .transactions import Transactions as Transactions
