"""The command line of ``twistd rsscloud-broker``; what it starts is tested in tests/e2e."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Config
from rsscloud_broker.tap import LOOPBACK, Options


class OptionsTests(SynchronousTestCase):
    def configuration(self, *arguments: str) -> Config:
        options = Options()
        options.parseOptions(arguments)
        return options.configuration()

    def test_nobody_is_trusted_by_default(self) -> None:
        self.assertEqual(self.configuration(), Config())

    def test_local_trusts_loopback(self) -> None:
        config = self.configuration("--local")
        self.assertEqual(config.egress.allow_topics, LOOPBACK)
        self.assertEqual(config.egress.allow_callbacks, LOOPBACK)
        self.assertEqual(config.limits.exempt, LOOPBACK)

    def test_local_adds_to_the_file(self) -> None:
        path = Path(self.mktemp())
        path.write_text("[limits]\nexempt = ['192.0.2.0/24']\npings_burst = 5\n")
        config = self.configuration("--local", "--config", str(path))
        self.assertEqual(config.limits.exempt, ("192.0.2.0/24", *LOOPBACK))
        self.assertEqual(config.limits.pings_burst, 5)
