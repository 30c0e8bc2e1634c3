"""All flows, and how many storage calls each makes in a cold process: a call that a change adds shows there."""

from __future__ import annotations

from collections.abc import Mapping

from tests.crash.destination_flows import DESTINATION_CALLS, DESTINATION_FLOWS
from tests.crash.flow_table import CALLS as PULL_CALLS
from tests.crash.flow_table import FLOWS as PULL_FLOWS
from tests.crash.operator_table import OPERATOR_CALLS, OPERATOR_FLOWS
from tests.crash.push_table import PUSH_CALLS, PUSH_FLOWS
from tests.crash.replay_flows import REPLAY_CALLS, REPLAY_FLOWS
from tests.crash.scenes import Flow

FLOWS: Mapping[str, Flow] = {
    **PULL_FLOWS,
    **PUSH_FLOWS,
    **OPERATOR_FLOWS,
    **REPLAY_FLOWS,
    **DESTINATION_FLOWS,
}
CALLS: Mapping[str, int] = {**PULL_CALLS, **PUSH_CALLS, **OPERATOR_CALLS, **REPLAY_CALLS, **DESTINATION_CALLS}
