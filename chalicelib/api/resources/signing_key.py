"""The key that signs receipts, page tokens, sessions and checks."""

from typing import Annotated, TypedDict

from msgspec import Meta, Struct

from ...domain import limits as lim
from ...domain.times import DAY_SECONDS
from ..calls import ADMIN, Context, Reach, Response, call
from ..fields import Time, at


class RotateKeyBody(Struct, forbid_unknown_fields=True):
    """A new signing key: how long signatures of the previous key stay valid."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_OVERLAP_SECONDS)] = DAY_SECONDS


class SigningKeyView(TypedDict):
    """When the present key was made, and when each earlier key becomes invalid."""

    rotated_at: Time
    former_until: list[Time]


@call("POST", "/v1/signing-key/rotate", scopes=ADMIN, body=RotateKeyBody, reach=Reach.SERVICE)
def rotate_signing_key(context: Context) -> Response[SigningKeyView]:
    """Sign with a new key from now on; what the previous key has signed stays valid for `overlap_seconds`."""
    ring = context.deps.signing_keys.rotate(context.body.overlap_seconds)
    ends = [at(key.until_ms) for key in ring.keys[1:] if key.until_ms is not None]
    return Response({"rotated_at": at(context.now_ms), "former_until": ends})
