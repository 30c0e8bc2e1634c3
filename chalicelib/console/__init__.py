"""Pages for people, under `/console`: see the queue, and act on it.

Pages are whole HTML and need no script. A page's handler (in `pages`) asks the services, and makes of their results
what a template shows. Only what a person does is a call of the HTTP interface (`actions`), checked as any is;
reading is not, so a filter or a field that the interface gets is not on a page by itself.
A function that starts imports the list of paths alone; the rest comes with the first visit.
"""

from collections.abc import Callable

from chalice.app import Chalice
from chalice.app import Response as ChaliceResponse

from .pages import PAGES, Entry


def register(app: Chalice) -> None:
    """Give every page a route in the Chalice app."""
    for entry in PAGES:
        name = f"console_{entry.name.replace('.', '_')}"
        app.route(entry.path, methods=[entry.method], content_types=["*/*"], name=name)(_view(app, entry))


def _view(app: Chalice, entry: Entry) -> Callable[..., ChaliceResponse]:
    def view(**params: str) -> ChaliceResponse:
        from .http import serve

        assert app.current_request is not None, "Chalice sets it before it calls a view"
        return serve(entry, app.current_request, params)

    return view
