"""For Django: `path("hooks", django_view(webhook))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from .receiver import Webhook


def django_view(webhook: Webhook) -> Callable[[HttpRequest], HttpResponse]:
    """A view, exempt from CSRF: the signature says who calls."""

    def view(request: HttpRequest) -> HttpResponse:
        answer = webhook.answer(request.method or "", dict(request.headers), request.body)
        return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))

    exempt: Any = csrf_exempt(view)
    return exempt  # type: ignore[no-any-return]
