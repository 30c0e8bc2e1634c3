"""Front door: every function that becomes a Lambda, and nothing else."""

from typing import Any

from chalice.app import AuthRequest, AuthResponse, CloudWatchEvent, LambdaFunctionEvent, Rate

from chalicelib import console, functions, wiring
from chalicelib.api import docs_page, http, resources
from chalicelib.api.gateway import Front

app = Front("headrace")
app.api.binary_types = ["*/*"]


@app.authorizer(ttl_seconds=20)
def authorize(request: AuthRequest) -> AuthResponse:
    return http.authorize(request, wiring.deps())


@app.lambda_function()
def receive(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app(event, context)


@app.lambda_function()
def api_url(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app.at_url(event, context)


@app.lambda_function()
def receive_url(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app.at_url(event, context, waits=True)


@app.lambda_function()
def route(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return functions.route(event, wiring.deps())


@app.lambda_function()
def journal(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return functions.journal(event, wiring.deps())


@app.lambda_function()
def deliver(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return functions.deliver(event, context, wiring.deps())


@app.lambda_function()
def deliver_slow(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return functions.deliver(event, context, wiring.deps())


@app.lambda_function()
def check(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return functions.check(event, context, wiring.deps())


@app.schedule(Rate(1, Rate.MINUTES))
def mover(event: LambdaFunctionEvent) -> dict[str, Any]:
    return functions.mover(event.event, event.context, wiring.deps())


setattr(mover, "event_class", LambdaFunctionEvent)  # noqa: B010 - its queue starts it, too


@app.schedule(Rate(1, Rate.MINUTES))
def sweep(event: CloudWatchEvent) -> dict[str, Any]:
    return functions.sweep(event.context, wiring.deps())


@app.schedule(Rate(1, Rate.MINUTES))
def assign(event: CloudWatchEvent) -> dict[str, Any]:
    return functions.assign(event.context, wiring.deps())


@app.schedule(Rate(6, Rate.HOURS))
def checkpoint(event: CloudWatchEvent) -> dict[str, Any]:
    return functions.checkpoint(event.to_dict(), event.context, wiring.deps())


@app.schedule(Rate(6, Rate.HOURS))
def expire(event: CloudWatchEvent) -> dict[str, Any]:
    return functions.expire(event.to_dict(), event.context, wiring.deps())


http.register(app, authorize)
http.register(app, authorize, docs_page.FILES)
console.register(app)

__all__ = ["app", "resources"]
