"""Signing in and out, the language, and the static files."""

from __future__ import annotations

from dataclasses import replace

from ...domain.errors import Malformed, NotFound
from .. import assets, corrections, session
from ..translations import LANGUAGES
from ..visit import File, Page, SeeOther, Shown, Visit

_FOR_GOOD = "public, max-age=31536000, immutable"


def sign_in(visit: Visit) -> Shown:
    """A pasted token becomes a session, and so does a link that was confirmed. A form that was sent after the session
    before had ended is shown again."""
    if ticket := visit.form.get("ticket"):
        return SeeOther(visit.links.to(), session.begin_by_link(visit.deps, ticket, secure=visit.secure))
    text = visit.form.get("token", "").strip()
    cookie = session.begin(visit.deps, text, secure=visit.secure)
    new_session = session.of(visit.deps, {"cookie": cookie.partition(";")[0]}, secure=visit.secure)
    if correction := corrections.resumed_correction(replace(visit, signed_in=new_session)):
        return Page("signed_in_again.html", {"correction": correction}, begun=(new_session, cookie))
    return SeeOther(visit.links.back(visit.form.get("back", "")), cookie)


def sign_in_by_link(visit: Visit) -> Shown:
    """A link that a terminal printed becomes a session; without its ticket, the form. Where another site led here,
    the visitor has to confirm it: the link may be a stranger's."""
    ticket = visit.query.get("ticket")
    if ticket is None or session.is_foreign(visit.headers):
        return Page("sign_in.html", {"refusal": False, "stale_link": False, "ticket": ticket, "typed": ""})
    return SeeOther(visit.links.to(), session.begin_by_link(visit.deps, ticket, secure=visit.secure))


def sign_out(visit: Visit) -> Shown:
    """End the session in this browser."""
    return SeeOther(visit.links.to(), session.end(secure=visit.secure))


def language(visit: Visit) -> Shown:
    """Show the pages in another language."""
    name = visit.form.get("language", "")
    if name not in LANGUAGES:
        raise Malformed("VALIDATION", "The pages speak en and zh.")
    return SeeOther(visit.links.back(visit.form.get("back", "")), session.choose_language(name))


def static(visit: Visit) -> Shown:
    """A static file under the name that holds its hash."""
    content = assets.read(visit.params["file"])
    if content is None:
        raise NotFound("ROUTE_NOT_FOUND", "There is nothing at this path.")
    return File(*content, {"Cache-Control": _FOR_GOOD, "Vary": "Accept-Encoding"})
