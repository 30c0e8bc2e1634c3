"""What people do: each button's form names a deed, and comes here."""

from __future__ import annotations

from ..http import SeeOther, Shown, Visit, page


@page("POST", "/console/do")
def do_deed(visit: Visit) -> Shown:
    """Do what the form says, and go back to where it stood."""
    from .. import deeds, forms

    form = forms.of(visit.form)
    answer = deeds.do(visit, form.deed)
    return SeeOther(visit.links.back(form.after(answer)))
