"""For Flask: `app.add_url_rule("/hooks", view_func=flask_view(webhook), methods=["POST", "OPTIONS"])`."""

from __future__ import annotations

from collections.abc import Callable

import flask

from .receiver import Webhook


def flask_view(webhook: Webhook) -> Callable[[], flask.Response]:
    """A view. Give its rule `provide_automatic_options=False`: the handshake is an OPTIONS request."""

    def view() -> flask.Response:
        request = flask.request
        answer = webhook.answer(request.method, dict(request.headers.items()), request.get_data())
        return flask.Response(answer.body, answer.status, dict(answer.headers))

    return view
