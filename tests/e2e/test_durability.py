"""What was acknowledged outlives the process, however that ends; see also `tests.e2e.test_kill`."""

from __future__ import annotations

from tests.e2e.fixture import EndToEndTestCase
from tests.e2e.servers import RECEIVERS


class KilledBeforeNotificationTests(EndToEndTestCase):
    def test_the_next_process_notifies(self) -> None:
        """The ping is acknowledged, and the broker is killed."""
        broker, origin = self.running_broker(), self.origin()
        feed = origin.feed()
        receivers = [self.served(make()) for make in RECEIVERS]
        for receiver in receivers:
            self.subscribed(broker, receiver, feed)
        origin.change(feed)
        for receiver in receivers:
            receiver.open.clear()
        self.assertIn("Thanks", broker.ping(feed).text)
        broker.kill()
        for receiver in receivers:
            receiver.open.set()
        self.assertEqual([receiver.heard for receiver in receivers], [[], [], []])
        broker.start()
        for receiver in receivers:
            self.assert_told(receiver, feed)
