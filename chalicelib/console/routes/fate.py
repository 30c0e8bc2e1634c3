"""Where a message is for each group, and that the sums agree."""

from __future__ import annotations

from ..http import Page, Shown, Visit, page
from .messages import check_may_read, find_with_dead_letters

_MOST_ROWS = 16  # of a retry lane
_ENOUGH = 9  # so much is left when another group is begun


@page("GET", "/console/topics/{topic}/messages/{id}/fate")
def message_fate(visit: Visit) -> Shown:
    """The message's place for each group, as far as the page's read units reach."""
    from ...domain.message import Message
    from ...services.inspect.fate import Fates

    check_may_read(visit)
    deps = visit.deps
    topic = visit.topic()
    id = visit.params["id"]
    message = find_with_dead_letters(visit, topic, id)
    fate_by_group, group_names_not_owed, rest = {}, [], 0
    if isinstance(message, Message):
        for group in (
            group for group in deps.catalog.groups(topic) if visit.caller.may_use_group(group.name)
        ):
            if not visit.has_read_units(_ENOUGH):
                rest += 1
            elif fate := deps.fates.of_group(topic, group, message, _MOST_ROWS):
                fate_by_group[group.name] = fate
            else:
                group_names_not_owed.append(group.name)
    fates = Fates(fate_by_group, tuple(group_names_not_owed))
    model = {
        "topic": topic,
        "id": id,
        "fates": fates,
        "is_in_log": isinstance(message, Message),
        "adds_up": fates.adds_up,
        "is_complete": not rest and fates.is_complete,
        "groups_left": rest,
    }
    return Page("fate.html", model)
