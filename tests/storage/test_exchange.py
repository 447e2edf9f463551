"""Exported documents can be imported again, and a faulty document changes nothing."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Table, func, insert, select
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import (
    Callback,
    Content,
    FetchResult,
    Lease,
    Outcome,
    Subscription,
    Topic,
    Validators,
)
from rsscloud_broker.model.administration import Block
from rsscloud_broker.model.work import Delivery, Fanout
from rsscloud_broker.storage import (
    ImportResult,
    InvalidImport,
    exchange,
    export_text,
    import_in_parts,
    open_database,
    write_file,
)
from rsscloud_broker.storage.blocks import all_blocks, import_blocks
from rsscloud_broker.storage.changes import changes
from rsscloud_broker.storage.contents import newest_content
from rsscloud_broker.storage.deliveries import record_deliveries
from rsscloud_broker.storage.moves import move_topic
from rsscloud_broker.storage.polls import polls_due
from rsscloud_broker.storage.recording import record_fetch
from rsscloud_broker.storage.schema import subscription, topic
from rsscloud_broker.storage.subscriptions import count_of_host, put_subscription, subscriptions
from rsscloud_broker.storage.topics import end_topic, get_topics
from rsscloud_broker.storage.walks import record_slice
from rsscloud_broker.util.urls import normal_form
from tests import examples
from tests.storage.databases import file_database, memory_database

FEED = "http://feeds.example/rss.xml"
NEW_FEED = "http://new.example/rss.xml"
NOW = 1_714_561_200.0  # 2024-05-01T11:00:00Z
LEASE = Lease(granted_at=NOW - 3600.5, seconds=90_000)
MEMBER = Subscription(
    FEED,
    Callback("http://reader.example/notify", "http-post"),
    LEASE,
    options={"secret": "s"},
    wants_content=True,
)
READING = FetchResult(FEED, b"d" * 32, 4711, NOW - 60)

#: A data file as rsscloud-server 4 writes it, with a protocol that this broker does not have.
PEER_FILE = Path(__file__).parent.parent / "fixtures" / "rsscloud-server.json"


def import_document(conn: Connection, document: object, now: float, **options: Any) -> ImportResult:
    """Import a document in the transaction of a connection."""
    return import_in_parts(lambda: nullcontext(conn), document, now, **options)


def count(conn: Connection, table: Table) -> int:
    return conn.execute(select(func.count()).select_from(table)).scalar_one()


def server_file() -> Any:
    """A data file of rsscloud-server, as `PEER_FILE` has it."""
    return json.loads(PEER_FILE.read_text())


def export_document(conn: Connection, now: float) -> dict[str, Any]:
    """The document in the exported text."""
    document: dict[str, Any] = json.loads("".join(export_text(conn, now)))
    return document


def export_of_a_broker() -> dict[str, Any]:
    """A document with a fetched topic, and a subscription with an error."""
    with memory_database() as conn:
        stored = put_subscription(conn, MEMBER)
        record_fetch(conn, READING, None)
        failed = Delivery(stored, Outcome(False, "it said 500"), at=NOW - 30, drop_after_failures=1)
        record_slice(conn, Fanout(1, FEED), stored.id, [failed], True)
        return export_document(conn, NOW)


def known_after(document: object, *fetched: FetchResult) -> Topic:
    """The topic after an import into a database that has these fetches of it."""
    with memory_database() as conn:
        for each in fetched:
            record_fetch(conn, each, None)
        import_document(conn, document, NOW)
        (known,) = get_topics(conn, [FEED])
    assert known is not None
    return known


def a_document(*topics: object) -> dict[str, Any]:
    """An export with topics as they are in documents."""
    return {"format": "rsscloud-broker", "version": 1, "topics": list(topics)}


class ExportTests(SynchronousTestCase):
    def test_document(self) -> None:
        self.assertEqual(
            export_of_a_broker(),
            {
                "format": "rsscloud-broker",
                "version": 1,
                "exported_at": "2024-05-01T11:00:00.000000Z",
                "blocks": [],
                "topics": [
                    {
                        "url": FEED,
                        "digest": "64" * 32,
                        "size": 4711,
                        "read_at": "2024-05-01T10:59:00.000000Z",
                        "changed_at": "2024-05-01T10:59:00.000000Z",
                        "ended": "",
                        "subscriptions": [
                            {
                                "callback": "http://reader.example/notify",
                                "protocol": "http-post",
                                "procedure": "",
                                "granted_at": "2024-05-01T09:59:59.500000Z",
                                "lease_seconds": 90_000,
                                "consecutive_errors": 1,
                                "last_error": "it said 500",
                                "last_error_at": "2024-05-01T10:59:30.000000Z",
                                "dropping": True,
                                "options": {"secret": "s"},
                                "wants_content": True,
                                "written_topic": "",
                            }
                        ],
                    }
                ],
            },
        )

    def test_text_is_laid_out_like_any_other(self) -> None:
        with memory_database() as conn:
            self.assert_laid_out(conn)
            put_subscription(conn, evolve(MEMBER, topic="http://feeds.example/é\u2028"))
            for number in range(3):
                callback = Callback(f"http://reader.example/{number}", "http-post")
                put_subscription(conn, evolve(MEMBER, callback=callback))
            record_fetch(conn, evolve(READING, url="http://feeds.example/of-nobody"), None)
            self.assert_laid_out(conn)

    def assert_laid_out(self, conn: Connection) -> None:
        text = "".join(export_text(conn, NOW))
        self.assertEqual(text, json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n")

    def test_is_made_while_rows_are_read(self) -> None:
        """Few subscriptions are in memory at a time, however many there are."""
        with memory_database() as conn:
            put_subscription(conn, MEMBER)
            (row,) = conn.execute(select(subscription)).mappings().all()
            some = [{**row, "id": n, "callback_url": f"http://a/{n}"} for n in range(2, 8000)]
            conn.execute(insert(subscription), some)
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            size = sum(map(len, export_text(conn, NOW)))
            _, most = tracemalloc.get_traced_memory()
        self.assertGreater(size, 2_000_000)
        self.assertLess(most, size / 3)

    def test_file_is_there_whole_or_as_it_was(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        file = directory / "export.json"

        def broken() -> Iterator[str]:
            yield "{"
            raise Unavailable("the disk is gone")

        for before in ([], ["as it was"]):
            self.assertRaises(Unavailable, write_file, str(file), broken())
            self.assertEqual([path.read_text() for path in directory.iterdir()], before)
            write_file(str(file), ["as it", " was"])
        self.assertEqual(file.read_text(), "as it was")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)


class ImportTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.document = export_of_a_broker()
        self.conn = self.enterContext(memory_database())

    def test_blocks_come_in_again(self) -> None:
        host = Block("host", "spam.example", "Ünï <spam>", "alice", NOW - 0.5)
        network = Block("source", "192.0.2.0/24", "flood", "bob", NOW)
        with memory_database() as conn:
            import_blocks(conn, [host, network], NOW)
            document = export_document(conn, NOW)
        with memory_database() as conn:
            import_blocks(conn, [evolve(host, reason="older")], NOW)
            imported = import_document(conn, document, NOW)
            self.assertEqual(all_blocks(conn), [host, network])
            self.assertEqual(len(changes(conn, None, 10)), 2)  # so running brokers take notice
        self.assertEqual(imported.blocks, 2)
        self.assertIn("blocks: 2", list(imported.sentences("")))

    def test_too_many_blocks_do_not_come_in(self) -> None:
        host = Block("host", "spam.example", "spam", "alice", NOW)
        other = evolve(host, object="other.example")
        with memory_database() as conn:
            import_blocks(conn, [host], NOW)
            self.document["blocks"] = export_document(conn, NOW)["blocks"]
        self.patch(exchange, "MAX_BLOCKS", 1)
        with memory_database() as conn:
            import_blocks(conn, [other], NOW)
            error = self.assertRaises(InvalidImport, import_document, conn, self.document, NOW)
            self.assertIn("1 are stored and 1 would be added", str(error))
            self.assertEqual(all_blocks(conn), [other])
            self.assertEqual(export_document(conn, NOW)["topics"], [])
        with memory_database() as conn:
            import_blocks(conn, [evolve(host, reason="older")], NOW)
            import_document(conn, self.document, NOW)  # it replaces that block
            self.assertEqual(all_blocks(conn), [host])

    def test_equal_subscriptions_are_replaced_and_others_kept(self) -> None:
        other = evolve(MEMBER, callback=evolve(MEMBER.callback, protocol="https-post"))
        renewed = put_subscription(self.conn, evolve(MEMBER, lease=Lease(NOW - 9999, 90_000)))
        kept = put_subscription(self.conn, other)
        imported = import_document(self.conn, self.document, NOW)
        found = subscriptions(self.conn, FEED, 0, 10)
        self.assertEqual(count_of_host(self.conn, "reader.example", 10), 2)
        self.assertEqual((imported.replaced, imported.dropping), (1, 1))
        self.assertEqual([one.id for one in found], [renewed.id, kept.id])
        self.assertEqual(found[0].lease, LEASE)
        self.assertEqual((found[0].consecutive_errors, found[0].dropping), (1, True))
        self.assertEqual(found[1], kept)

    def test_later_reading_is_kept(self) -> None:
        for read_at, kept in ((NOW - 61, b"d"), (NOW - 59, b"n")):
            known = known_after(self.document, FetchResult(FEED, b"n" * 32, 1, read_at))
            self.assertEqual(known.digest, kept * 32)

    def test_later_of_an_end_and_a_reading_is_kept(self) -> None:
        with memory_database() as conn:
            end_topic(conn, FEED, "moved away", NOW - 50)
            document = export_document(conn, NOW)
        for read_at, ended in ((NOW - 51, "moved away"), (NOW - 49, "")):
            known = known_after(document, FetchResult(FEED, b"n" * 32, 1, read_at))
            self.assertEqual(known.ended, ended)
        with memory_database() as conn:
            import_document(conn, document, NOW)
            self.assertEqual(export_document(conn, NOW), document)

    def test_who_subscribed_before_a_move_is_listed_under_that_url(self) -> None:
        other = evolve(MEMBER, topic=NEW_FEED)
        with memory_database() as conn:
            for one in (MEMBER, other):
                put_subscription(conn, one)
            record_fetch(conn, READING, None)
            for left, to in ((FEED, NEW_FEED), ("http://feeds.example/nobody.xml", NEW_FEED)):
                self.assertTrue(move_topic(conn, left, to, NOW))
            document = export_document(conn, NOW)
            listed = {one["url"]: one for one in document["topics"]}
            self.assertEqual(set(listed), {FEED, NEW_FEED})
            self.assertEqual(listed[FEED], listed[NEW_FEED] | {"url": FEED})
            # An import into the same database changes nothing.
            before = subscriptions(conn, FEED, 0, 10)
            import_document(conn, document, NOW)
            self.assertEqual(subscriptions(conn, FEED, 0, 10), before)
        with memory_database() as conn:
            import_document(conn, document, NOW)
            self.assertEqual(export_document(conn, NOW), document)
            self.assertTrue(move_topic(conn, FEED, NEW_FEED, NOW))
            moved = subscriptions(conn, NEW_FEED, 0, 10)
            self.assertEqual({one.topic for one in moved}, {FEED, NEW_FEED})
            self.assertFalse(record_fetch(conn, evolve(READING, url=NEW_FEED), None).changed)

    def test_what_comes_in_is_polled_unless_it_ended(self) -> None:
        import_document(self.conn, self.document, NOW)
        self.assertEqual([one.topic.url for one in polls_due(self.conn, 0, 10)], [FEED])
        self.document["topics"][0] |= {"ended": "gone", "changed_at": "2024-06-01T00:00:00Z"}
        import_document(self.conn, self.document, NOW)
        self.assertEqual(polls_due(self.conn, NOW, 10), [])

    def test_validators_of_what_is_replaced_are_forgotten(self) -> None:
        older = evolve(READING, started_at=NOW - 99, validators=Validators("1"))
        known = known_after(export_of_a_broker(), older)
        self.assertEqual((known.read_at, known.validators), (NOW - 60, Validators()))

    def test_document_from_before_there_were_options(self) -> None:
        del self.document["topics"][0]["ended"]
        for name in ("options", "wants_content"):
            del self.document["topics"][0]["subscriptions"][0][name]
        import_document(self.conn, self.document, NOW)
        (one,) = subscriptions(self.conn, FEED, 0, 10)
        self.assertEqual((one.options, one.wants_content, one.ended), ({}, False, ""))

    def test_notification_that_waits_carries_content_as_the_import_says(self) -> None:
        content = Content(b"<rss/>")
        stored = put_subscription(self.conn, evolve(MEMBER, wants_content=False))
        put_off = Delivery(stored, None, at=NOW, retry_at=NOW + 9)
        record_deliveries(self.conn, [put_off])
        import_document(self.conn, self.document, NOW)
        record_fetch(self.conn, evolve(READING, content=content), None)
        self.assertEqual(newest_content(self.conn, FEED), content)

    def test_what_is_named_twice_is_stored_once(self) -> None:
        self.document["topics"][0]["subscriptions"] *= 2
        self.assertEqual(import_document(self.conn, self.document, NOW).subscriptions, 1)
        self.assertEqual(count(self.conn, subscription), 1)

    def test_expired_leases_are_left_out(self) -> None:
        imported = import_document(self.conn, self.document, LEASE.expires_at)
        self.assertEqual(imported, ImportResult(topics=1, subscriptions=0, expired=1))
        self.assertEqual(subscriptions(self.conn, FEED, 0, 10), [])
        self.document["topics"] = []
        self.assertEqual(import_document(self.conn, self.document, NOW), ImportResult(0, 0, 0))

    def test_short_transactions(self) -> None:
        """Other processes can write between two transactions."""
        entry = export_of_a_broker()["topics"][0]
        (one,) = entry["subscriptions"]
        callbacks = [{**one, "callback": f"http://r.example/{number}"} for number in range(5000)]
        document = a_document(
            {**entry, "url": "http://feeds.example/read-by-many", "subscriptions": callbacks},
            *({**entry, "url": f"http://feeds.example/{number}"} for number in range(1500)),
        )
        url = file_database(self)
        sizes: list[int] = []

        @contextmanager
        def begin() -> Iterator[Connection]:
            with open_database(url) as conn:
                before = count(conn, topic) + count(conn, subscription)
                yield conn
                sizes.append(count(conn, topic) + count(conn, subscription) - before)

        for _ in range(2):
            imported = import_in_parts(begin, document, NOW)
            self.assertEqual((imported.topics, imported.subscriptions), (1501, 6500))
        with open_database(url, writes=False) as conn:
            self.assertEqual((count(conn, topic), count(conn, subscription)), (1501, 6500))
        self.assertEqual(sum(sizes), 1501 + 6500)
        self.assertLess(max(sizes), 2500)

    def test_going_on_after_an_interruption(self) -> None:
        entry = export_of_a_broker()["topics"][0]
        urls = (f"http://feeds.example/{number}" for number in range(3000))
        document = a_document(*({**entry, "url": url} for url in urls))
        url = file_database(self)
        begun: list[None] = []

        def begin() -> AbstractContextManager[Connection]:
            if len(begun) == 1:
                raise KeyboardInterrupt
            begun.append(None)
            return open_database(url)

        self.assertRaises(KeyboardInterrupt, import_in_parts, begin, document, NOW)
        with open_database(url, writes=False) as conn:
            self.assertEqual(count(conn, topic), 1000)
        import_in_parts(partial(open_database, url), document, NOW)
        with open_database(url, writes=False) as conn:
            self.assertEqual((count(conn, topic), count(conn, subscription)), (3000, 3000))

    def test_nothing_of_a_broken_document_is_stored(self) -> None:
        self.document["topics"].append({"url": "no URL"})

        def begin() -> AbstractContextManager[Connection]:
            raise AssertionError("nothing may be written")

        self.assertRaises(InvalidImport, import_in_parts, begin, self.document, NOW)

    def test_protocols_that_nobody_speaks_here_are_left_out(self) -> None:
        imported = import_document(self.conn, self.document, NOW, protocols={"websub"})
        self.assertEqual(imported, ImportResult(1, 0, 0, unspoken={"http-post": 1}))
        self.assertEqual(count(self.conn, subscription), 0)
        imported = import_document(self.conn, self.document, NOW)
        self.assertEqual((imported.replaced, imported.dropping), (0, 1))
        self.assertEqual(count_of_host(self.conn, "reader.example", 10), 1)

    def test_subscription_by_websub_is_of_the_hub_that_it_names(self) -> None:
        (one,) = self.document["topics"][0]["subscriptions"]
        one["protocol"] = "websub"
        for options, hub, taken_over in (
            ({}, "http://new.example/hub", 1),
            ({"hub": "http://b.example/hub"}, "http://b.example/hub", 0),
        ):
            one["options"] = options
            with memory_database() as conn:
                imported = import_document(conn, self.document, NOW, hub="http://new.example/hub")
                (stored,) = subscriptions(conn, FEED, 0, 10)
            self.assertEqual(stored.options, {"hub": hub})
            self.assertEqual(imported.taken_over, taken_over)

    def test_data_file_of_rsscloud_server(self) -> None:
        hub = "https://broker.example/websub"
        spoken = {"websub", "http-post", "xml-rpc"}
        document = server_file()
        *_, notified, _, _ = document["feeds"][FEED]["subscriptions"]
        notified["whenLastError"] = "1970-01-01T00:00:00.000Z"  # there was none
        imported = import_document(self.conn, document, NOW, hub=hub, protocols=spoken)
        found = subscriptions(self.conn, FEED, 0, 10)
        (known,) = get_topics(self.conn, [FEED])
        expected = ImportResult(2, 5, expired=1, dropping=1, taken_over=3, unspoken={"pigeon": 1})
        self.assertEqual(imported, expected)
        signed, plain, failing, post, rpc = found
        self.assertEqual(
            signed,
            Subscription(
                topic=FEED,
                callback=Callback("http://reader.example/websub/signed", "websub"),
                lease=Lease(NOW - 3 * 86_400 + 0.5, 864_000),
                id=signed.id,
                options={"secret": "the miller's daughter", "hub": hub},
                wants_content=True,
            ),
        )
        self.assertEqual((plain.lease, plain.options), (Lease(NOW - 3600, 3900), {"hub": hub}))
        self.assertEqual((plain.consecutive_errors, plain.dropping), (2, False))
        self.assertEqual((plain.last_error, plain.last_error_at), ("", NOW - 1200))
        self.assertEqual((failing.consecutive_errors, failing.dropping), (3, True))
        self.assertEqual(post.callback, Callback("http://reader.example:80/notify", "http-post"))
        url = "http://reader.example:80/RPC2"
        self.assertEqual(rpc.callback, Callback(url, "xml-rpc", "river.changed"))
        for one in (post, rpc):
            self.assertEqual((one.options, one.wants_content), ({}, False))
            self.assertEqual((one.lease, one.last_error_at), (Lease(NOW - 3600, 90_000), None))
        assert known is not None
        self.assertEqual((known.digest, known.read_at), (None, None))  # it uses another hash


#: A position in a document, a faulty value for it, and the error that names the position.
Fault: TypeAlias = tuple[tuple[str | int, ...], object, str]


def below(path: tuple[str | int, ...], shown: str, *faults: tuple[str, object, str]) -> list[Fault]:
    """Faults of members of the object at a path, each with its name, and the rule that it breaks.

    :param shown: the path as errors name it.
    """
    return [((*path, name), value, f"{shown}.{rule}") for name, value, rule in faults]


BROKEN_EXPORTS: list[Fault] = [
    (("version",), 2, "version: must be 1"),
    (("topics",), {}, "topics: must be an array"),
    (("topics", 0), "x", "topics[0]: must be an object"),
    *below(
        ("topics", 0),
        "topics[0]",
        ("url", None, "url: must be an http or https URL"),
        ("url", "ftp://a.example/", "url: must be an http or https URL"),
        ("url", "http://a.example/ b", "url: must be an http or https URL"),
        ("url", "http://a.example/\ud800", "url: must be an http"),
        ("size", None, "digest: goes together with size"),
        ("size", -1, "size: must be a whole number from 0"),
        ("digest", "6464", "digest: must be a SHA-256 digest"),
        ("read_at", 5, "read_at: must be a time in ISO 8601"),
        ("changed_at", "today", "changed_at: must be a time in ISO 8601"),
        ("ended", None, "ended: must be a text"),
    ),
    *below(
        ("topics", 0, "subscriptions", 0),
        "topics[0].subscriptions[0]",
        ("callback", "/", "callback: must be an http"),
        ("protocol", "", "protocol: must not be empty"),
        ("procedure", "\0", "procedure: must be a text"),
        ("granted_at", None, "granted_at: must be a time"),
        ("lease_seconds", 0, "lease_seconds: must be a whole"),
        ("lease_seconds", True, "lease_seconds: must be a whole"),
        ("consecutive_errors", 1.5, "consecutive_errors: must be a whole"),
        ("last_error", None, "last_error: must be a text"),
        ("dropping", 1, "dropping: must be true or false"),
        ("options", [], "options: must be an object"),
        ("options", {"a": 1}, "options.a: must be a text"),
        ("options", {"\0": ""}, "options: must have names without"),
        ("wants_content", 0, "wants_content: must be true"),
        ("written_topic", "feed", "written_topic: must be an http or https URL"),
    ),
]

#: For a document whose only block is of a network.
BROKEN_BLOCKS: list[Fault] = [
    (("blocks", 0), {"kind": "host", "object": ""}, "blocks[0].object: must not be empty"),
    *below(
        ("blocks", 0),
        "blocks[0]",
        ("kind", "x", "kind: must be one of host, topic, source"),
        ("object", "192.0.2.7/24", "object: must be a network"),
        ("kind", "topic", "object: must be an http or https URL"),
        ("at", None, "at: must be a time"),
        ("reason", 5, "reason: must be a text"),
    ),
]

_FEED = f'feeds["{FEED}"]'

BROKEN_SERVER_FILES: list[Fault] = [
    (("version",), 1, "version: must be 2"),
    (("feeds",), [], "feeds: must be an object"),
    (("feeds", "about:blank"), {}, 'feeds["about:blank"]: must be an http or https URL'),
    (("feeds", FEED), [], f"{_FEED}: must be an object"),
    (("feeds", FEED, "subscriptions"), 1, f"{_FEED}.subscriptions: must be an array"),
    *below(
        ("feeds", FEED, "subscriptions", 1),
        f"{_FEED}.subscriptions[1]",
        ("whenExpires", "soon", "whenExpires: must be a time in ISO 8601"),
        ("url", 1, "url: must be an http"),
        ("protocol", 1, "protocol: must be a"),
        ("details", [], "details: must be an object"),
        ("details", {"leaseSeconds": 0}, "details.leaseSeconds: must be"),
        ("notifyProcedure", [], "notifyProcedure: must be a"),
        ("ctConsecutiveErrors", "2", "ctConsecutiveErrors: must be a whole"),
    ),
]


class BadDocumentTests(SynchronousTestCase):
    def assert_refused(self, document: object, reason: str) -> None:
        with memory_database() as conn:
            error = self.assertRaises(InvalidImport, import_document, conn, document, NOW)
            self.assertIn(reason, str(error))
            self.assertIsInstance(error, ValueError)
            self.assertEqual((count(conn, topic), count(conn, subscription)), (0, 0))
            self.assertEqual(all_blocks(conn), [])

    def assert_each_refused(self, good: dict[str, Any], faults: list[Fault]) -> None:
        for path, value, reason in faults:
            document = deepcopy(good)
            place: Any = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            self.assert_refused(document, reason)

    def test_exports(self) -> None:
        self.assert_each_refused(export_of_a_broker(), BROKEN_EXPORTS)

    def test_server_files(self) -> None:
        self.assert_each_refused(server_file(), BROKEN_SERVER_FILES)

    def test_blocks(self) -> None:
        block = {"kind": "source", "object": "192.0.2.0/24", "at": "2024-05-01T11:00:00Z"}
        self.assert_each_refused({**a_document(), "blocks": [block]}, BROKEN_BLOCKS)

    def test_neither_kind(self) -> None:
        strangers: list[object] = [{}, {"format": "opml"}, {"version": 2}]
        for document in strangers:
            self.assert_refused(document, "neither an export of this broker")
        no_objects: list[object] = [[], None, "text", 1]
        for document in no_objects:
            self.assert_refused(document, "the document: must be an object")

    def test_topic_that_is_listed_twice(self) -> None:
        document = export_of_a_broker()
        document["topics"] *= 2
        self.assert_refused(document, f"topics[1].url: {FEED} is in the list twice")


class SpellingTests(SynchronousTestCase):
    """Topics that differ in spelling only are merged; each subscriber is notified the URL it
    wrote."""

    def test_server_file(self) -> None:
        document = server_file()
        other = "HTTP://Feeds.example:80/%72ss.xml"
        self.assertEqual(normal_form(other), FEED)
        *_, notified, rpc, _ = document["feeds"][FEED]["subscriptions"]
        document["feeds"][FEED]["subscriptions"] = [notified, rpc]
        document["feeds"][other] = {
            "subscriptions": [notified, {**notified, "url": "http://other.example/notify"}]
        }
        with memory_database() as conn:
            self.assertEqual(import_document(conn, document, NOW).topics, 2)
            told = {
                one.callback.url: (one.topic, one.told_topic)
                for one in subscriptions(conn, FEED, 0, 10)
            }
            again, _ = export_document(conn, NOW)["topics"]
        self.assertEqual(
            told,
            {
                "http://reader.example:80/RPC2": (FEED, FEED),
                "http://reader.example:80/notify": (FEED, other),
                "http://other.example/notify": (FEED, other),
            },
        )
        self.assertEqual({one["written_topic"] for one in again["subscriptions"]}, {"", other})


# Without null characters, which PostgreSQL refuses, and surrogates, which UTF-8 cannot encode.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
urls = st.from_regex(r"https?://[!-~]{1,20}", fullmatch=True)
topic_urls = urls.map(normal_form)
times = st.integers(0, 4_000_000_000_000_000).map(lambda micros: micros / 1_000_000)
callbacks = st.builds(Callback, urls, texts.filter(bool), texts)
leases = st.builds(Lease, times, st.integers(1, 10**9))
members = st.lists(
    st.builds(
        Subscription,
        topic_urls,
        callbacks,
        leases,
        options=st.dictionaries(texts, texts, max_size=2),
        wants_content=st.booleans(),
        written=st.just("") | urls,
    ).map(lambda one: evolve(one, written="") if one.written == one.topic else one),
    max_size=8,
)
ends = st.lists(st.tuples(topic_urls, texts.filter(bool), times), max_size=2)
readings = st.lists(
    st.builds(
        FetchResult, topic_urls, st.binary(min_size=32, max_size=32), st.integers(0, 10**12), times
    ),
    max_size=4,
)


class RoundTripTests(SynchronousTestCase):
    @settings(max_examples=examples(20), deadline=None)
    @given(members, readings, ends)
    def test_what_is_exported_can_be_imported(
        self,
        members: list[Subscription],
        readings: list[FetchResult],
        ends: list[tuple[str, str, float]],
    ) -> None:
        with memory_database() as conn:
            for one in members:
                put_subscription(conn, one)
            for reading in readings:
                record_fetch(conn, reading, None)
            for url, reason, at in ends:
                end_topic(conn, url, reason, at)
            document = json.loads(json.dumps(export_document(conn, NOW)))
        with memory_database() as conn:
            import_document(conn, document, now=-1)
            again = export_document(conn, NOW)
            self.assertEqual(by_content(again), by_content(document))
            import_document(conn, document, now=-1)
            self.assertEqual(export_document(conn, NOW), again)


def by_content(document: dict[str, Any]) -> dict[str, Any]:
    """A document with its lists in an order that does not depend on ids in the database."""
    topics = [
        {**one, "subscriptions": sorted(one["subscriptions"], key=json.dumps)}
        for one in document["topics"]
    ]
    return {**document, "topics": sorted(topics, key=lambda one: str(one["url"]))}
