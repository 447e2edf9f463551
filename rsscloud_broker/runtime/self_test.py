"""Keeps the secret key of the broker's self-test, and answers its questions.

``rsscloud-broker doctor`` asks the broker through its public URL how the request arrived; see
``wire.self_test``.  The broker makes a new key at each start, in its data directory.  Only its own
user can read that file, so only the operator can ask.  The key is also a token for the health and
the metrics, so that a check on this machine can always read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from secrets import token_bytes
from typing import Final

from twisted.application.service import Service
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.interfaces import IClock, ISelfTest
from rsscloud_broker.wire import self_test

#: The file of the key, in the data directory.
KEY_FILE: Final = "self-test.key"


def read_key(data: str) -> bytes:
    """The key of the broker that runs with a data directory.

    :raises OSError: the file does not exist or cannot be read.
    """
    return Path(data, KEY_FILE).read_bytes()


@implementer(ISelfTest)
class SelfTest(Service):
    """Answers questions of the operator; see ``ISelfTest``.

    :param data: the data directory, which exists when this service starts.
    """

    name = "self-test"
    log = Logger()

    def __init__(self, data: str, clock: IClock) -> None:
        self._file = Path(data, KEY_FILE)
        self._clock = clock
        self._key = b""

    def startService(self) -> None:
        """Make a new key that only the broker's own user can read."""
        super().startService()
        key = token_bytes(32)
        try:
            self._file.unlink(missing_ok=True)  # its permissions may be wrong
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(key)
        except OSError as error:
            self.log.warn(
                "The doctor cannot test how requests arrive: the key cannot be stored: {error}",
                error=error,
            )
        else:
            self._key = key

    def answer(self, question: Mapping[str, str], arrived: Mapping[str, str]) -> bytes | None:
        if not self._key:
            return None
        if not self_test.is_genuine(self._key, question, self._clock.wall_seconds()):
            return None
        # The command cannot see the limits of another process.
        facts = {**arrived, "descriptors": str(getrlimit(RLIMIT_NOFILE)[0])}
        return self_test.answer(self._key, question["nonce"], facts)

    async def knows(self, token: str) -> bool:
        """Whether a token is the key, in hexadecimal digits."""
        return bool(self._key) and compare_digest(self._key.hex().encode(), token.encode())
