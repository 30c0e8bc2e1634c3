"""Jinja2 for the console: everything is escaped, what is undefined is an error. Imported with the first page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from ..domain.times import rfc3339
from . import assets, figures, session, translations
from .actions import Action, has, why_not_allowed
from .forms import LABELS, UNDONE_BY
from .visit import MOST_READ_UNITS, Page, Visit, query_text

_NEWS = ("did", "n", "of", "next", "rate", "seen", "ticket")
# Fields of a query that tell of an action, and where a list goes on.
_POSITIONS = ("after", "before", "page")


@cache
def environment() -> Environment:
    """The templates, with what they can call."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        extensions=["jinja2.ext.i18n"],
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.install_gettext_callables(_gettext, _ngettext, newstyle=True)  # type: ignore[attr-defined]
    same = ("count", "units", "size", "rate", "percent")
    made.filters |= {name: getattr(figures, name) for name in same} | {
        "span": _in_language(figures.span),
        "error_text": _in_language(translations.error_text),
        "issue": _in_language(translations.issue_text),
        "moment": rfc3339,
        "ms": figures.ms_of,
        "combined": lambda one, other: {**one, **other},
    }
    made.globals |= {
        "asset": assets.name_of,
        "Action": Action,
        "query_text": query_text,
        "has_action": has,
        "undone_by": UNDONE_BY,
        "setting_labels": LABELS,
    }
    return made


class _Buttons:
    """The actions of a page's buttons. The page shows the curl command of each; those that have none beside their
    button are listed at its end."""

    def __init__(self) -> None:
        self._labels: list[tuple[str, Action]] = []
        self._shown: list[Action] = []

    def add(self, label: str, action: Action) -> str:
        """A button that the page shows."""
        self._labels.append((label, action))
        return ""

    def note_curl_shown(self, action: Action) -> str:
        """An action whose curl the page shows."""
        self._shown.append(action)
        return ""

    def take_without_curl(self) -> list[tuple[str, Action]]:
        """Those that were added and whose curl was not shown; it counts as shown from now on."""
        rest: list[tuple[str, Action]] = []
        for label, action in self._labels:
            if action not in self._shown:
                rest.append((label, action))
                self._shown.append(action)
        return rest


@pass_context
def _gettext(context: Context, text: str) -> str:
    return translations.text_of(context["language"], text)


@pass_context
def _ngettext(context: Context, one: str, many: str, number: object) -> str:
    return translations.text_of_number(context["language"], one, many, number)


def _in_language(text_of: Callable[[Any, str], str]) -> Callable[[Context, Any], str]:
    """A filter that says something in the reader's language."""
    return pass_context(lambda context, value: text_of(value, context["language"]))


def _query_without(visit: Visit, names: Collection[str]) -> str:
    return query_text({name: value for name, value in visit.query.items() if name not in names})


def render(visit: Visit, page: Page) -> bytes:
    """The page as HTML; only its moving part, where a page that is shown already asks for that."""
    signed_in = visit.signed_in
    model: dict[str, Any] = {
        "layout": "fragment.html" if visit.wants_fragment else "base.html",
        "visit": visit,
        "query": defaultdict(str, visit.query),
        "links": visit.links,
        "now_ms": visit.now_ms,
        "here_query": _query_without(visit, _NEWS),
        "first_query": _query_without(visit, (*_NEWS, *_POSITIONS)),
        "language": session.language_of(visit.headers),
        "token": signed_in.token if signed_in else None,
        "csrf": signed_in.csrf if signed_in else "",
        "most_units": MOST_READ_UNITS,
        "buttons": _Buttons(),
        "why_not": lambda action: why_not_allowed(action, visit.caller),
        **visit.named,
        **page.model,
    }
    template = environment().get_template(page.template)
    # What was read to show the page stands in its footer, so all reading is done by now.
    return template.render(model).encode()
