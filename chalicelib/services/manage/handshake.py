"""Handshakes: asks the owner of a subscriber's URL for consent."""

from __future__ import annotations

from ...domain.call_result import Verdict
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Sender
from ..core.wake import Waker
from .registry import Registry


class Consent:
    """Asks the owner of a PENDING consumer's URL again."""

    def __init__(self, sender: Sender, registry: Registry, waker: Waker) -> None:
        self._sender = sender
        self._registry = registry
        self._waker = waker

    def ask(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        """Ask the consumer's URL. Returns True if it agreed; it is called from now on. Any other answer is stored
        with the consumer, if it differs from the last one."""
        greeting = self._sender.greet(consumer.target)
        if greeting.verdict is not Verdict.DONE:
            if greeting.detail != consumer.why:
                self._registry.still_pending(topic, group, consumer, greeting.detail)
            return False
        active = self._registry.activate(topic, group, consumer)
        if active:
            self._waker.wake_for(topic, group, active)
        return active is not None
