"""The names that accounts may have."""

from __future__ import annotations

from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts.names import RESERVED, check_name, is_name
from rsscloud_broker.errors import InvalidAccount
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor
from rsscloud_broker.plugins import bundled
from rsscloud_broker.testing import front_door_parts, memory_database, memory_store
from rsscloud_broker.wire.xmlrpc import CALL_PATHS


class NamesTests(SynchronousTestCase):
    def test_good_names(self) -> None:
        for name in ("dave", "a1", "0x", "a-b--c", "x" * 32, "42"):
            check_name(name)

    def test_bad_names(self) -> None:
        bad = ("", "a", "x" * 33, "-a", "a-", "--", "Dave", "dävid", "a b", "a_b", "a.b", "a/b")
        for name in (*bad, "dave\n", "da\0ve", "\uff41\uff42", "١٢"):
            self.assertFalse(is_name(name), name)
            error = self.assertRaises(InvalidAccount, check_name, name)
            self.assertIn("2 to 32 of the letters a to z, digits and hyphens", str(error))

    def test_reserved_names(self) -> None:
        for name in ("admin", "api", "log", "stats", "topic", "signin", "account", "www", "root"):
            error = self.assertRaises(InvalidAccount, check_name, name)
            self.assertIn("is reserved", str(error))

    def test_reserved_names_are_names(self) -> None:
        """Otherwise they would never be compared with one; single letters need no entry."""
        self.assertEqual({name for name in RESERVED if not is_name(name)}, set())

    def parts(self) -> FrontDoorParts:
        """All that a front door may ask for."""
        return front_door_parts(
            database=memory_database(),
            changes=memory_store(),
            directory=FilePath("no-such-directory"),
        )

    def test_first_parts_of_the_paths_of_the_broker_are_reserved(self) -> None:
        paths = set(CALL_PATHS)
        for maker in vars(bundled).values():
            if isinstance(maker, bundled.FrontDoorMaker) and maker.name != "accounts":
                door: IFrontDoor = maker.make(maker.options(), self.parts())
                paths |= {route.path for route in door.routes()}
        words = {path.split("/")[1].lower() for path in paths}
        self.assertGreater(len(words), 20)
        free = {word for word in words if is_name(word) and word not in RESERVED}
        self.assertEqual(free, set())
