"""What people do: each button's form names a deed, and comes here."""

from __future__ import annotations

from ..http import Page, SeeOther, Shown, Visit, page

_SECRETS = {"secret": "Signing secret", "token": "Token"}
"""What a call answers once and never again."""


@page("POST", "/console/do")
def do_deed(visit: Visit) -> Shown:
    """Do what the form says, and go back to where it stood."""
    from .. import deeds, forms

    form = forms.of(visit.form)
    answer = deeds.do(visit, form.deed)
    for name in _SECRETS:
        if isinstance(answer, dict) and answer.get(name):
            return Page("secret.html", {"title": _SECRETS[name], "secret": answer[name]})
    return SeeOther(visit.links.back(form.after(answer)))
