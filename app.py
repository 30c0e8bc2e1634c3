"""Front door: every function that becomes a Lambda, and nothing else."""

from typing import Any

from chalice.app import AuthRequest, AuthResponse, CloudWatchEvent, Rate

from chalicelib import observe, wiring
from chalicelib.api import access, http, routes
from chalicelib.api.gateway import Front

app = Front("headrace")
app.api.binary_types = ["*/*"]


@app.authorizer(ttl_seconds=30)
def authorize(request: AuthRequest) -> AuthResponse:
    return access.authorize(request, wiring.deps())


@app.schedule(Rate(6, Rate.HOURS))
def checkpoint(event: CloudWatchEvent) -> dict[str, Any]:
    report = wiring.deps().checkpointer.run_once().as_dict()
    observe.report("checkpoint", report)
    return report


http.register(app, authorize)

__all__ = ["app", "routes"]
