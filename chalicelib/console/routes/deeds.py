"""What people do: each button's form names a deed, and comes here."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any
from urllib.parse import parse_qsl

from ...domain.errors import HeadraceError
from ..http import Page, SeeOther, Shown, Visit, page

_SECRETS = {"secret": "Signing secret", "token": "Token"}
"""What a call answers once and never again."""


@page("POST", "/console/do")
def do_deed(visit: Visit) -> Shown:
    """Do what the form says; then back to where it stood, by way of a page with a button that undoes it, if one can."""
    from .. import deeds, forms, resending, undo

    form = forms.of(visit.form)
    before = undo.prepare(visit, form.deed) if "undoes" not in visit.form else None
    answer = deeds.do(visit, form.deed, resending.headers(visit, form.deed))
    for name in _SECRETS:
        if isinstance(answer, dict) and answer.get(name):
            return Page("secret.html", {"title": _SECRETS[name], "secret": answer[name]})
    after, refusals = form.after(answer), _refusals(answer)
    before = undo.of_changed(before, answer) if before else None
    if before is None and not refusals:
        return SeeOther(visit.links.back(after))
    query = defaultdict(str, parse_qsl(after.partition("?")[2]))
    return Page(
        "done.html",
        {
            "undo": before,
            "undo_deed": forms.of(before).deed if before else None,
            "refusals": refusals,
            "after": form.back,
            "back": form.back,
            "query": query,
        },
    )


def _refusals(answer: Any) -> list[tuple[HeadraceError, int]]:
    """Why some of many were refused, and how many for each reason."""
    items = answer.get("items", ()) if isinstance(answer, dict) else ()
    problems = [item["error"] for item in items if "error" in item]
    counts = Counter((problem["code"], problem["detail"]) for problem in problems)
    return [(HeadraceError(code, detail), number) for (code, detail), number in counts.items()]
