"""A host that does not answer is called again, and told, when it comes back."""

from __future__ import annotations

import time

from tests.e2e.fixture import EndToEndTestCase, until
from tests.e2e.servers import HttpPostReceiver

#: Seconds for which the broker of this test does not call a host that does not answer.
PAUSE = 2.0

#: By how much a pause is lengthened at most, at random, and what the machine takes at most.  A
#: second attempt by the schedule of retries would come after 30 seconds.
JITTER, MARGIN = 1.2, 20.0

CALLBACKS = 6


class BreakerTests(EndToEndTestCase):
    def test_a_host_that_comes_back_is_told_within_the_pause(self) -> None:
        """Six callbacks refuse, so that the breaker opens; then they are back."""
        broker = self.own_broker(f"[sinks.distribution]\nbreaker_pause = {PAUSE}\n")
        broker.start()
        origin = self.origin()
        topic = origin.feed()
        receiver = HttpPostReceiver()
        receiver.start()
        for number in range(CALLBACKS):
            answer = broker.subscribe(receiver, topic, path=f"/notify{number}")
            self.assertIn('success="true"', answer.text)
        receiver.stop()
        origin.change(topic)
        broker.ping(topic)
        name = f"127.0.0.1:{receiver.port}"
        until(lambda: f"Stopped calling {name}" in broker.log, "the breaker to open")
        back = self.served(HttpPostReceiver(receiver.port))
        began = time.monotonic()
        until(lambda: len(back.heard) >= CALLBACKS, "all of them to be told")
        self.assertLess(time.monotonic() - began, PAUSE * JITTER + MARGIN)
        self.assertIn(f"{name} answers again", broker.log)
