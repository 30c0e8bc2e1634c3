"""Be called: requests that Headrace sends, verified, parsed and answered. Adapters for what serves them stand beside:
`headrace.webhook.wsgi`, `.asgi`, `.flask`, `.django`, and `.function` for consumers that are Lambda functions."""

from .events import Event
from .receiver import Answer, Check, Webhook
from .signing import SignatureError, verify

__all__ = ["Answer", "Check", "Event", "SignatureError", "Webhook", "verify"]
