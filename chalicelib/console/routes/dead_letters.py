"""Dead letters of a group: grouped by what went wrong; one, to be mended and sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...api import lists
from ...domain.errors import Malformed
from ..http import Page, Shown, Visit, page
from .messages import check_may_read

if TYPE_CHECKING:
    from ...domain.message import Message
    from ...domain.record import DeadLetter
    from ...domain.topic import Group, Topic
    from ...services.inspect.letter_lookup import DeadLetterFilter

LETTERS = "/console/topics/{topic}/groups/{group}/dead-letters"
_ROWS = 20
_LEFT = 7  # so much is left, when another page of rows is read
_MOST_COUNTED = 50


@page("GET", LETTERS)
def dead_letters(visit: Visit) -> Shown:
    """The first dead letters, or those behind a position."""
    from ..views import letters as view

    check_may_read(visit)
    topic, group = visit.group()
    letters, next_start = read_letters(visit, topic, group)
    links = link_filters(visit)
    count, more = len(letters), next_start is not None or "after" in visit.query
    if more and not links and visit.has_read_units(6):
        count = visit.deps.adapters.records.count_dead(topic.uid, group.uid, _MOST_COUNTED)
        more = count >= _MOST_COUNTED
    model = {
        "topic": topic,
        "group": group,
        "letters": letters,
        "kinds": view.kinds(letters),
        "names": visit.deps.catalog.consumer_names(topic, group),
        "following": next_start,
        "counted": count,
        "more": more,
        "filter": links,
    }
    return Page("dead_letters.html", model)


def link_filters(visit: Visit) -> dict[str, str]:
    """The filters in the URL, for links to the same letters and for a redrive of them."""
    return {name: visit.query[name] for name in lists.LETTER_FILTERS if visit.query.get(name)}


def letter_filter(visit: Visit) -> DeadLetterFilter:
    """The same for the service. Raises Malformed."""
    return lists.letter_filter(link_filters(visit))


def read_letters(
    visit: Visit, topic: Topic, group: Group, most: int = _ROWS
) -> tuple[list[DeadLetter], str | None]:
    """Letters that fit, and where the next page begins."""
    purpose = f"console-letters:{group.uid}"
    after = visit.deps.signing_keys.verified(purpose, visit.query.get("after", "")) or None
    letters, position = visit.deps.letter_lookup.page(
        topic,
        group,
        letter_filter(visit),
        after,
        most,
        rows_per_read=_ROWS,
        may_go_on=lambda: visit.has_read_units(_LEFT),
    )
    return letters, visit.deps.signing_keys.sign(purpose, position) if position is not None else None


@page("GET", f"{LETTERS}/{{id}}")
def dead_letter(visit: Visit) -> Shown:
    """One dead letter, with a form to mend it."""
    return _letter(visit, None)


@page("POST", f"{LETTERS}/{{id}}")
def preview_edit(visit: Visit) -> Shown:
    """What an edit would change, before anything happens."""
    return _letter(visit, visit.form.get("body", ""))


def _letter(visit: Visit, draft: str | None) -> Shown:
    from ...api import strict
    from ...services.core.bodies import with_body
    from .. import forms
    from ..views import letters as view
    from ..views import message as message_view

    check_may_read(visit)
    deps = visit.deps
    topic, group = visit.group()
    letter = deps.letter_lookup.find(topic, group, visit.params["id"])[0]
    message: Message = with_body(deps.adapters.blobs, letter.message)
    body = message_view.body_as(message.draft, "pretty")
    problem, edit = None, None
    if draft is not None:
        try:
            strict.parse(draft.strip().encode())
            edit = forms.of({**visit.params, "deed": "edit_dead_letter", "body": draft}).deed
        except Malformed as error:
            problem = error.detail
    model = {
        "topic": topic,
        "group": group,
        "letter": letter,
        "message": message,
        "body": body,
        "editable": message_view.editable_body(message.draft),
        "draft": draft,
        "problem": problem,
        "edit": edit,
        "diff": view.diff(body, draft) if draft is not None and problem is None else None,
        "names": deps.catalog.consumer_names(topic, group),
    }
    return Page("dead_letter.html", model, 200 if problem is None else 400)
