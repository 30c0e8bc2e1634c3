"""For Django: `path("hooks", django_view(webhook))`; in an ASGI server with an async handler, `async_django_view`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from .receiver import Answer, Webhook
from .wsgi import body_of


def django_view(webhook: Webhook) -> Callable[[HttpRequest], HttpResponse]:
    """A view, exempt from CSRF: the signature says who calls."""

    def view(request: HttpRequest) -> HttpResponse:
        body = request.body
        if not request.META.get("CONTENT_LENGTH") and "wsgi.input" in request.META:
            body = body_of(request.META)  # Django reads none that is chunked
        if isinstance(body, Answer):
            return _response(body)
        return _response(webhook.answer(request.method or "", dict(request.headers), body))

    exempt: Any = csrf_exempt(view)
    return exempt  # type: ignore[no-any-return]


def async_django_view(webhook: Webhook) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """The same as an async view: an async handler runs in the loop of the ASGI server."""

    async def view(request: HttpRequest) -> HttpResponse:
        answer = await webhook.answer_async(request.method or "", dict(request.headers), request.body)
        return _response(answer)

    exempt: Any = csrf_exempt(view)
    return exempt  # type: ignore[no-any-return]


def _response(answer: Answer) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))
