"""Tests how thousands of waiting notifications are worked off; slow hosts keep out nobody."""

from __future__ import annotations

from rsscloud_broker.delivery import retries
from rsscloud_broker.delivery.retries import AT_A_TIME, BATCH_SIZE, OF_A_HOST
from tests.delivery.engine import REFUSED, EngineTestCase


class BacklogTests(EngineTestCase):
    def wait_many(self, count: int, host: str = "") -> list[str]:
        """Have notifications wait that are due now; nothing runs."""
        urls = self.subscribe_many(count, host=host)
        self.notifier.outcomes = dict.fromkeys(urls, REFUSED)
        self.start_walk()
        self.stop()
        self.notifier.outcomes.clear()
        self.notifier.calls.clear()
        self.assertEqual((len(self.waiting()), self.walks()), (count, []))
        self.advance(60, 60)
        return urls

    def in_memory(self) -> int:
        return len(self.distribution._retries._in_memory)

    def test_worked_off_in_batches(self) -> None:
        urls = self.wait_many(1500)
        self.notifier.holds.update(urls)
        self.start(in_flight=50, max_slow=0)
        most = 0
        while len(self.notifier.calls) < len(urls):
            self.advance(0.2, 0.2)
            most = max(most, self.in_memory())
            self.assertLessEqual(len(self.notifier.held), 50)
            self.notifier.end()
        self.notifier.end()
        self.advance(1)
        self.assertEqual(sorted(self.called()), sorted(urls))
        self.assertEqual(most, 50)
        self.assertEqual((self.in_memory(), self.waiting()), (0, {}))

    def test_silent_hosts_leave_slots_for_first_attempts(self) -> None:
        """However many notifications for them are due."""
        silent = self.wait_many(300)
        self.notifier.holds.update(silent)
        self.start(in_flight=20, max_slow=200)
        self.advance(5)
        self.assertEqual((len(self.notifier.held), self.in_memory()), (20 + 200 // 4,) * 2)
        others = [f"http://other{number}.example/" for number in range(100)]
        for url in others:
            self.subscribe(url, topic="http://feeds.example/other")
        self.notifier.holds.update(others)  # none of them answers quickly, either
        self.change("http://feeds.example/other")
        self.advance(1)
        self.assertEqual(set(self.called()) & set(others), set(others))
        for _ in range(300):
            self.notifier.end()
            self.advance(0.3, 0.3)
        self.assertEqual((set(self.called()), self.waiting()), ({*silent, *others}, {}))

    def test_slow_host_keeps_out_nobody(self) -> None:
        """It has its share of what is in memory, and of what is under way."""
        slow = self.wait_many(1000, host="slow.example")
        quick = self.subscribe_many(300)
        self.notifier.outcomes = dict.fromkeys(quick, REFUSED)
        self.notifier.holds = {"slow.example"}
        self.start_walk()
        self.advance(4)
        self.assertEqual(len(self.notifier.held), 4)
        self.notifier.outcomes.clear()
        self.advance(6)
        called = self.called()
        self.assertEqual(len(set(called) & set(slow)), 4)
        self.assertEqual(sorted(set(called) - set(slow)), sorted(quick))
        self.assertEqual(set(self.waiting()), set(slow))
        self.assertLess(self.in_memory(), OF_A_HOST + BATCH_SIZE)
        for _ in range(400):
            self.notifier.end()
            self.advance(0.3, 0.3)
        self.assertEqual((set(self.called()), self.waiting()), ({*slow, *quick}, {}))
        self.assertLess(len(self.called()), 1000 + 2 * 300 + 10)

    def test_several_slow_hosts_keep_out_nobody(self) -> None:
        """Though what waits for them would fill all the room that there is."""
        count = 2 * AT_A_TIME // OF_A_HOST
        for number in range(count):
            self.subscribe_many(2 * OF_A_HOST, host=f"slow{number}.example")
        self.notifier.holds = {f"slow{number}.example" for number in range(count)}
        well = "http://well.example/"
        self.subscribe(well)
        self.notifier.outcomes[well] = REFUSED
        self.start_walk()
        for _ in range(5):
            self.advance(10, 0.5)  # that is how long the slow ones take
            self.notifier.end()
        self.assert_times(well, [0, 5, 35], delta=4.6)
        self.assertGreater(len(self.called()), 4 * 4 * count)  # in five times of 10 s

    def test_slow_hosts_get_their_turns(self) -> None:
        """A host is called as much as it answers, with others about that are slower."""
        self.patch(retries, "AT_A_TIME", 30)
        for host in ("slow.example", "slower.example"):
            self.subscribe_many(100, host=host)
        self.notifier.holds = {"slow.example", "slower.example"}
        self.start_walk()
        for _ in range(60):
            self.advance(2, 0.5)
            held = [url for url, _ in self.notifier.held if "//slow." in url]
            if held:
                self.notifier.end(*held)
        self.assertEqual(len(set(self.called())), 104)
