"""The key that signs receipts, page tokens, sessions and checks."""

from __future__ import annotations

from ...domain.topic import Scope
from ..calls import Context, Reach, Response, call
from ..requests import RotateKeyBody
from ..responses import signing_key
from ..responses.signing_key import SigningKeyView


@call("POST", "/v1/signing-key/rotate", scopes=(Scope.ADMIN,), body=RotateKeyBody, reach=Reach.SERVICE)
def rotate_signing_key(context: Context) -> Response[SigningKeyView]:
    """Sign with a new key from now on; what the previous key has signed stays valid for `overlap_seconds`."""
    ring = context.deps.signing_keys.rotate(context.body.overlap_seconds)
    return Response(signing_key.view(ring, context.deps.adapters.clock.now_ms()))
