"""What became of receipts that were settled or extended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

from ...domain.errors import HeadraceError
from ..problems import Problem, problem
from .common import either

if TYPE_CHECKING:
    from ...services.consume.lease_settlement import SettleAnswer


class ReceiptResult(TypedDict):
    """The result for one receipt: `ok` (`already`: this lease had the same result before), or the error."""

    receipt: str
    ok: NotRequired[Literal[True]]
    already: NotRequired[Literal[True]]
    error: NotRequired[Problem]


class ReceiptResults(TypedDict):
    """The result for each receipt, in the same order."""

    results: list[Annotated[ReceiptResult, either(["ok"], ["error"])]]


def results(receipts: Sequence[str], answers: "Sequence[SettleAnswer]", request_id: str) -> ReceiptResults:
    """What became of each receipt."""
    pairs = zip(receipts, answers, strict=True)
    return {"results": [_result(receipt, answer, request_id) for receipt, answer in pairs]}


def _result(receipt: str, answer: "SettleAnswer", request_id: str) -> ReceiptResult:
    if answer is None:
        return {"receipt": receipt, "ok": True}
    if isinstance(answer, HeadraceError):
        return {"receipt": receipt, "error": problem(answer, request_id)}
    return {"receipt": receipt, "ok": True, "already": True}
