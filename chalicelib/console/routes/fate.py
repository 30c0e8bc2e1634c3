"""Where a message is for each group, and that the sums agree."""

from __future__ import annotations

from ..http import Page, Shown, Visit, page
from .messages import check_may_read, find_with_dead_letters, own_first

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
    fate_by_group, group_names_not_owed, names_left = {}, [], []
    if isinstance(message, Message):
        for group in own_first(visit, deps.catalog.groups(topic)):
            if not visit.has_read_units(_ENOUGH):
                names_left.append(group.name)
            elif fate := deps.fates.of_group(topic, group, message, _MOST_ROWS):
                fate_by_group[group.name] = fate
            else:
                group_names_not_owed.append(group.name)
    fates = Fates(fate_by_group, tuple(group_names_not_owed))
    model = {
        "topic": topic,
        "id": id,
        "fates": fates.of_groups(visit.caller.may_use_group),
        "is_in_log": isinstance(message, Message),
        "adds_up": fates.adds_up,
        "is_complete": not names_left and fates.is_complete,
        "groups_left": sum(map(visit.caller.may_use_group, names_left)),
    }
    return Page("fate.html", model)
