"""Asking the owners of URLs whether they agree to be called."""

from __future__ import annotations

from ...domain.outcome import Verdict
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Sender
from ..core.wake import Waker
from .admin import Admin


class Consent:
    """Asks again who is PENDING."""

    def __init__(self, sender: Sender, setup: Admin, waker: Waker) -> None:
        self._sender = sender
        self._setup = setup
        self._waker = waker

    def ask(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        """Ask one; True where it agreed and is called from now on. What came instead is noted, if it is news."""
        greeting = self._sender.greet(consumer.target)
        if greeting.verdict is not Verdict.DONE:
            if greeting.detail != consumer.why:
                self._setup.still_pending(topic, group, consumer, greeting.detail)
            return False
        active = self._setup.activate(topic, group, consumer)
        if active:
            self._waker.wake_for(topic, group, active)
        return active is not None
