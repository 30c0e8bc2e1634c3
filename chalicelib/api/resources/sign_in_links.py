"""Links that sign a browser in to the console."""

from typing import TypedDict

from ..calls import ANY, Context, Response, call
from ..fields import NoBody, Time, at


class SignInLink(TypedDict):
    """A link that signs in the first browser that opens it, until it expires. It contains no token."""

    url: str
    expires_at: Time


@call("POST", "/v1/sign-in-links", scopes=ANY, body=NoBody, statuses=(201,))
def create_sign_in_link(context: Context) -> Response[SignInLink]:
    """A link that signs a browser in to the console with this token, once, within a minute."""
    caller = context.caller
    assert caller is not None, "a call with scopes has a caller"
    headers = {name.lower(): value for name, value in context.headers.items()}
    text = headers.get("authorization", "").partition(" ")[2].strip()
    # of this text: after a rotation, a link made with the former one no longer works
    fingerprint = context.deps.tokens.fingerprint_of(text)
    ticket, ends_ms = context.deps.sign_in_links.ticket(caller.token_id, fingerprint)
    is_tls = bool(context.deps.adapters.stage) or headers.get("x-forwarded-proto") == "https"
    origin = f"{'https' if is_tls else 'http'}://{headers.get('host', 'localhost')}"
    url = f"{origin}{context.prefix}/console/sign-in?ticket={ticket}"
    return Response({"url": url, "expires_at": at(ends_ms)}, 201)
