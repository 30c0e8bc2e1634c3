"""Finding a topic, group or consumer by its name, or a message by its id, a key or its job's name, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator

from ...domain import ids
from ...domain.errors import HeadraceError, Unreadable
from ...domain.message import Message
from ...domain.topic import Topic
from ...services.inspect.lookup import Filters
from ...services.produce.dedup import job_id
from ..visit import MOST_READ_UNITS, Page, SeeOther, Shown, Visit

_ROWS = 32  # topics that are read at once, and names that are shown
_LEFT = 3  # read units that are left when another topic is searched
_MOST_NAMES = 10
_MOST_OF_A_KEY = 8


def find(visit: Visit) -> Shown:
    """What has a name that begins so; messages with this id or key, over all topics of the token: as many topics as the
    page may search, behind the one that the URL names. One that is the only one is shown at once."""
    text, after = visit.query.get("q", "").strip()[:256], visit.name_before
    hits: list[tuple[Topic, Message]] = []
    searched_names: list[str] = []
    last, next_start = after, None
    topics = _topics_with_prefix(visit, text) if text and not after else []
    places = [([topic.name], visit.links.to("topics", topic.name)) for topic in topics]
    for topic in _topics(visit, after) if text else ():
        if not visit.has_units(_LEFT):
            next_start = last
            break
        last = topic.name
        if visit.caller.may_use(topic.name):
            try:
                hits += [(topic, message) for message in _hits(visit, topic, text)]
                places += _places(visit, topic, text)
            except Unreadable as error:
                visit.deps.key_lookup.on_skip(error)
                continue
            searched_names.append(topic.name)
    if len(hits) + len(places) == 1 and not after and next_start is None:
        if hits:
            return SeeOther(visit.links.to("topics", hits[0][0].name, "messages", hits[0][1].id))
        if places[0][0][-1] == text:
            return SeeOther(places[0][1])
    model = {
        "text": text,
        "named": [(" / ".join(names), link) for names, link in places[:_ROWS]],
        "hits": hits,
        "searched": searched_names,
        "following": visit.sealed_name(next_start),
    }
    return Page("find.html", model)


def _topics(visit: Visit, after: str) -> Iterator[Topic]:
    """The topics behind a name, read as they are asked for; those that the token may not use are skipped where that
    is possible."""
    start = visit.caller.behind(after)
    while start is not None:
        rows = visit.deps.adapters.control.topics(start or None, _ROWS, consistent=False)
        yield from rows
        start = visit.caller.behind(rows[-1].name) if len(rows) == _ROWS else None


def _topics_with_prefix(visit: Visit, text: str) -> list[Topic]:
    """The first of the token's topics whose names begin with the text, as far as half of the read units reach."""
    if not ids.NAME.match(text):
        return []
    topics: list[Topic] = []
    before = f"{text[:-1]}{chr(ord(text[-1]) - 1)}~"  # "~" sorts behind all characters of names
    for topic in _topics(visit, before):
        is_enough = len(topics) == _MOST_NAMES or not visit.has_units(MOST_READ_UNITS / 2)
        if is_enough or not topic.name.startswith(text):
            break
        topics += [topic] if visit.caller.may_use(topic.name) else []
    return topics


def _places(visit: Visit, topic: Topic, text: str) -> Iterator[tuple[list[str], str]]:
    """The topic's groups and consumers whose names begin with the text, and links to them."""
    groups = () if _is_id(text) or not ids.NAME.match(text) else visit.deps.catalog.groups(topic)
    names = [each.name for each in groups if visit.caller.may_use_group(each.name)]
    consumers = visit.deps.adapters.control.all_consumers(topic) if names else []
    found: list[tuple[str, ...]] = [(name,) for name in names]
    found += [(each.group, each.name) for each in consumers if each.group in names]
    for group, *consumer in (place for place in found if place[-1].startswith(text)):
        page = ("consumers", *consumer) if consumer else ()
        yield [topic.name, group, *consumer], visit.links.to("topics", topic.name, "groups", group, *page)


def _is_id(text: str) -> bool:
    return bool(ids.parse_message_id(text) or ids.parse_timed_id(text) or ids.parse_half_id(text))


def _hits(visit: Visit, topic: Topic, text: str) -> list[Message]:
    if _is_id(text):
        try:
            hit = visit.deps.lookup.find(topic, text)
        except HeadraceError:
            return []
        return [hit.message]
    results, _ = visit.deps.key_lookup.newest_first(topic, text, Filters(), _MOST_OF_A_KEY, None)
    if not results and visit.caller.may_use_job(text):
        job = visit.deps.lookup.find_by_dedup_id(topic, job_id(text), consistent=False)
        results = [job] if job else []
    return [each.message for each in results]
