"""Tests of `tests.e2e.servers`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.e2e import servers


class NewPortTests(SynchronousTestCase):
    """Brokers that tests share would take a port that comes again for the same topic."""

    def test_used_ports(self) -> None:
        """A server listens at none of them, whatever the system offers."""
        self.patch(servers, "used_ports", {port for port in range(1 << 16) if port % 8 != 5})
        for make in (servers.Origin, *servers.RECEIVERS):
            server = make()
            server.start()
            self.addCleanup(server.stop)
            self.assertEqual(server.port % 8, 5)
            self.assertIn(server.port, servers.used_ports)
