"""Tests the environment in which a courier starts."""

from __future__ import annotations

import os
import site
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.outbound.couriers import spawning


class EnvironmentTests(SynchronousTestCase):
    def environment(self, given: dict[str, str], package: str) -> dict[str, str]:
        """What a courier gets of an environment, with the broker's package in a directory."""
        with (
            mock.patch.dict(os.environ, given, clear=True),
            mock.patch.object(rsscloud_broker, "__file__", f"{package}/broker/__init__.py"),
        ):
            return spawning._environment()

    def test_what_it_keeps(self) -> None:
        given = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SECRET": "sesame", "PYTHONPATH": "/of/others"}
        kept = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": "/checkout"}
        self.assertEqual(self.environment(given, "/checkout"), kept)

    def test_installed_package(self) -> None:
        """Packages do not come before the standard library."""
        for package in site.getsitepackages():
            self.assertEqual(self.environment({}, package), {})

    def test_names_of_certificates(self) -> None:
        """They mean the same in another directory."""
        given = {"SSL_CERT_FILE": "a.pem", "SSL_CERT_DIR": f"b{os.pathsep}{os.pathsep}/c"}
        here = Path.cwd()
        kept = self.environment(given, "/checkout")
        self.assertEqual(kept["SSL_CERT_FILE"], f"{here}/a.pem")
        self.assertEqual(kept["SSL_CERT_DIR"], f"{here}/b{os.pathsep}{os.pathsep}/c")
