"""How many couriers there are by default."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from rsscloud_broker.config import couriers
from rsscloud_broker.config.couriers import DeliveryConfig


class AutoTests(SynchronousTestCase):
    """On a machine whose control groups are directories of this test."""

    def setUp(self) -> None:
        if not hasattr(os, "sched_getaffinity"):
            raise SkipTest("this system has neither affinity nor control groups")
        self.groups = Path(self.mktemp()).absolute()
        self.inner = self.groups / "system.slice" / "broker.service"
        self.inner.mkdir(parents=True)
        self.own = Path(self.mktemp())
        self.own.write_text("0::/system.slice/broker.service\n", encoding="ascii")
        self.patch(couriers, "_GROUPS", self.groups)
        self.patch(couriers, "_OWN_GROUP", self.own)

    def couriers(self, processors: int) -> int:
        """How many there are where this process may run on so many processors."""
        with mock.patch.object(os, "sched_getaffinity", lambda _: set(range(processors))):
            return DeliveryConfig().couriers

    def test_as_many_as_processors(self) -> None:
        """At least one, and no more than eight."""
        for processors, number in ((1, 1), (2, 2), (4, 4), (8, 8), (64, 8)):
            self.assertEqual(self.couriers(processors), number)

    def test_affinity(self) -> None:
        """What the process may not run on does not count."""
        before = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, before)
        os.sched_setaffinity(0, {min(before)})
        self.assertEqual(DeliveryConfig().couriers, 1)

    def test_control_groups(self) -> None:
        """The one that gets least counts, and a part of a processor as a whole one."""
        for of_all, own, number in (
            ("max 100000", "max 100000", 8),
            ("max 100000", "50000 100000", 1),
            ("max 100000", "150000 100000", 2),
            ("300000 100000", "max 100000", 3),
            ("300000 100000", "400000 100000", 3),
            ("100 100000", "100 100000", 1),
            ("nonsense", "", 8),
        ):
            (self.groups / "cpu.max").write_text(f"{of_all}\n", encoding="ascii")
            (self.inner / "cpu.max").write_text(f"{own}\n", encoding="ascii")
            self.assertEqual(self.couriers(8), number, (of_all, own))

    def test_container_that_sees_only_its_own_group(self) -> None:
        (self.groups / "cpu.max").write_text("200000 100000\n", encoding="ascii")
        for told in ("0::/docker/0123\n", "0::/\n", "1:cpu:/a\n0::/../elsewhere\n"):
            self.own.write_text(told, encoding="ascii")
            self.assertEqual(self.couriers(8), 2, told)

    def test_system_that_says_nothing(self) -> None:
        self.own.unlink()
        self.assertEqual(self.couriers(8), 8)
        self.own.write_text("4:cpu,cpuacct:/old\n", encoding="ascii")
        self.assertEqual(self.couriers(8), 8)
