"""The Lambda authorizer: a token becomes a caller, or 401."""

from __future__ import annotations

from chalice.app import AuthRequest, AuthResponse

from ..domain.errors import Unauthorized
from ..wiring import Deps


class Unauthenticated(Exception):
    """API Gateway answers 401 to an authorizer that fails with exactly the word Unauthorized."""

    def __init__(self) -> None:
        super().__init__("Unauthorized")


def authorize(request: AuthRequest, deps: Deps) -> AuthResponse:
    """The policy for a token. It covers every path: API Gateway keeps it for the token's next calls too, and
    which of them the token may make is checked at each call by its scopes."""
    scheme, _, text = request.token.strip().partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise Unauthenticated
        caller = deps.tokens.authenticate(text.strip())
    except (Unauthorized, Unauthenticated):
        # arn:aws:execute-api:<region>:<account>:<api>/<stage>/<method>/<path>
        _, _, method, path = f"{request.method_arn}///".split("/", 3)
        deps.refusals.note(deps.tokens.claimed_id(text.strip()), method, f"/{path.rstrip('/')}")
        raise Unauthenticated from None
    context = {
        "scopes": " ".join(sorted(caller.scopes)),
        "topics": " ".join(caller.topics),
        "groups": " ".join(caller.groups),
        "name": caller.name,
        "rate_limit": "" if caller.rate_limit is None else str(caller.rate_limit),
        "expires_ms": "" if caller.expires_ms is None else str(caller.expires_ms),
    }
    return AuthResponse(routes=["*"], principal_id=caller.token_id, context=context)
