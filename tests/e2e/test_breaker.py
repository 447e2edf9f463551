"""A host that does not answer is called again, and told, when it comes back."""

from __future__ import annotations

from tests.e2e.fixture import EndToEndTestCase, until
from tests.e2e.servers import HttpPostReceiver

#: Seconds for which the broker of this test does not call a host that does not answer.
PAUSE = 2.0

CALLBACKS = 6


class BreakerTests(EndToEndTestCase):
    def test_a_host_that_comes_back_is_told(self) -> None:
        """Six callbacks refuse, so that the breaker opens; then they are back.

        That this takes no longer than the pause is tested in ``tests.delivery.test_breakers``.
        """
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
        until(lambda: len(back.heard) >= CALLBACKS, "all of them to be notified")
        self.assertIn(f"{name} answers again", broker.log)
