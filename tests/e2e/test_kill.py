"""One broker on SQLite that is killed at random moments, again and again, keeps its word."""

from __future__ import annotations

from tests import examples
from tests.e2e.test_cluster import Node
from tests.e2e.test_cluster_faults import KILL, FaultsTestCase


class RepeatedKillTests(FaultsTestCase):
    lives = ((KILL,) * examples(8),)

    def make_database(self) -> str:
        return f"sqlite:///{self.directory() / 'broker.sqlite'}"

    def start_next_hour(self, node: Node) -> None:
        node.start(ahead=3600)

    def test_nothing_is_lost(self) -> None:
        self.check_nothing_is_lost()
