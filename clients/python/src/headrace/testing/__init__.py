"""Tests against a whole Headrace, without sleeping: the fixture `headrace`.

def test_an_order_is_mailed(headrace):
    shop.place_order(188)                                # your code, which sends to "orders"
    headrace.drain(shop.hr)                              # your consumers work, here and now
    headrace.expect("orders", group="mailer").delivered(1)
    headrace.clock.advance(days=3)                       # what is due on the way happens
"""

from .clock import Clock
from .expect import Expectation
from .local import LocalHeadrace
from .service import Service, ServiceMissing, serving
from .subscriber import Push, Subscriber

__all__ = [
    "Clock",
    "Expectation",
    "LocalHeadrace",
    "Push",
    "Service",
    "ServiceMissing",
    "Subscriber",
    "serving",
]
