"""The contract of the store: jobs that one node does for all, and the documents that it makes."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.storage import Store

#: When the job is done next, after a turn that began at 1000.
NEXT, MINUTE = 1060.0, 60.0
CHANGES = "/changes.xml"


class SharedWorkContract(TestCase):
    """The tests that every store must pass."""

    def make_store(self) -> Store:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()

    # jobs

    async def test_job_is_due_until_it_is_done(self) -> None:
        turn = await self.store.claim_job("a", 1000.0, MINUTE)
        self.assertEqual((turn.due_at, turn.claimed, turn.is_others), (0.0, True, False))
        self.assertEqual(await self.store.claim_job("a", 1000.0, MINUTE), turn, "once more")
        self.assertTrue(await self.store.finish_job("a", NEXT))
        early = await self.store.claim_job("a", 1059.0, MINUTE)
        self.assertEqual((early.claimed, early.is_others), (False, False))
        turn = await self.store.claim_job("a", 1300.0, MINUTE)
        self.assertEqual((turn.due_at, turn.claimed), (NEXT, True), "minutes were missed")

    async def test_job_that_is_released_is_as_due_as_before(self) -> None:
        await self.store.claim_job("a", 1000.0, MINUTE)
        await self.store.finish_job("a", NEXT)
        await self.store.claim_job("a", 1100.0, MINUTE)
        await self.store.release_job("a")
        self.assertFalse(await self.store.finish_job("a", 5000.0), "it is not claimed")
        self.assertEqual((await self.store.claim_job("a", 1100.0, MINUTE)).due_at, NEXT)

    async def test_job_is_due_if_the_clock_that_planned_it_was_wrong(self) -> None:
        await self.store.claim_job("a", 1000.0, MINUTE)
        await self.store.finish_job("a", 9000.0)
        self.assertTrue((await self.store.claim_job("a", 1001.0, MINUTE)).claimed)

    async def test_requested_job_is_done_once_more(self) -> None:
        await self.store.request_job("a", 10.0)  # nobody does it yet
        await self.store.claim_job("a", 1000.0, MINUTE)
        await self.store.request_job("a", 10.0)
        self.assertFalse(await self.store.finish_job("a", NEXT))
        self.assertTrue((await self.store.claim_job("a", 1001.0, MINUTE)).claimed)
        self.assertTrue(await self.store.finish_job("a", NEXT))
        await self.store.request_job("a", 10.0)
        self.assertEqual((await self.store.claim_job("a", 1001.0, MINUTE)).due_at, 10.0)

    async def test_since_when_jobs_are_due(self) -> None:
        await self.store.claim_job("never", 1000.0, MINUTE)
        await self.store.claim_job("a", 1000.0, MINUTE)
        self.assertEqual(await self.store.late_jobs(), {})
        await self.store.finish_job("a", NEXT)
        self.assertEqual(await self.store.late_jobs(), {"a": NEXT})

    # documents

    async def make(
        self, name: str, *parts: bytes, made_at: float = 1000.0, records: int = 1
    ) -> int:
        key = await self.store.begin_document(name, made_at)
        for number, part in enumerate(parts):
            self.assertTrue(await self.store.put_document_part(key, number, part))
        self.assertTrue(await self.store.finish_document(key, 100, records))
        return key

    async def stored(self) -> list[SharedDocument]:
        return await self.store.shared_documents([CHANGES])

    async def test_document_is_seen_when_it_is_whole(self) -> None:
        key = await self.store.begin_document(CHANGES, 1000.5)
        await self.store.put_document_part(key, 0, b"part")
        self.assertEqual(await self.stored(), [])
        self.assertTrue(await self.store.finish_document(key, 4711, 12))
        (found,) = await self.stored()
        self.assertEqual(found, SharedDocument(CHANGES, key, 1000.5, 4711, 12, found.stored_at))
        self.assertEqual(await self.store.shared_documents([CHANGES, "/other"]), [found])
        self.assertEqual(await self.store.documents_since(found.stored_at - 1, "", 9), [found])
        self.assertEqual(await self.store.documents_since(found.stored_at, "", 9), [])

    async def test_more_names_than_a_statement_may_have_parameters(self) -> None:
        await self.make(CHANGES)
        names = [*(f"/{number}" for number in range(70_000)), CHANGES]
        self.assertEqual(await self.store.shared_documents(names), await self.stored())

    async def test_bytes_of_a_document(self) -> None:
        key = await self.make(CHANGES, b"one\x00", b"two")
        parts = [await self.store.document_part(key, number) for number in range(3)]
        self.assertEqual(parts, [b"one\x00", b"two", None])

    async def test_newer_version_replaces_the_one_before(self) -> None:
        before = await self.make(CHANGES, b"before")
        after = await self.make(CHANGES, b"after", made_at=1060.0, records=0)
        (found,) = await self.stored()
        self.assertEqual((found.id, found.made_at), (after, 1060.0))
        self.assertIsNone(await self.store.document_part(before, 0))

    async def test_names_in_their_order(self) -> None:
        for name in ("/c", "/a", "/b"):
            await self.make(name)
        found = await self.store.documents_since(0.0, "", 2)
        self.assertEqual([one.name for one in found], ["/a", "/b"])
        following = await self.store.documents_since(0.0, "/b", 2)
        self.assertEqual([one.name for one in following], ["/c"])

    async def test_unfinished_version_is_dropped_by_the_next(self) -> None:
        lost = await self.store.begin_document(CHANGES, 1000.0)
        await self.make(CHANGES, b"whole")
        self.assertFalse(await self.store.put_document_part(lost, 0, b"late"))
        self.assertFalse(await self.store.finish_document(lost, 1, 1))
        self.assertEqual(len(await self.store.documents_since(0.0, "", 10)), 1)

    async def test_whole_version_is_not_changed(self) -> None:
        key = await self.make(CHANGES, b"whole")
        self.assertFalse(await self.store.put_document_part(key, 1, b"late"))
        self.assertFalse(await self.store.finish_document(key, 1, 1), "it is finished")
        self.assertEqual(await self.store.document_part(key, 0), b"whole")

    async def test_only_a_version_with_more_pings(self) -> None:
        await self.make(CHANGES, records=5)
        for records, taken in ((5, False), (4, False), (6, True)):
            key = await self.store.begin_document(CHANGES, 2000.0)
            done = await self.store.finish_document(key, 9, records)
            self.assertEqual(done, taken, records)
        (found,) = await self.stored()
        self.assertEqual(found.records, 6)

    async def test_nothing_is_stored_without_the_claim_of_the_job(self) -> None:
        key = await self.store.begin_document(CHANGES, 1000.0)
        self.assertFalse(await self.store.finish_document(key, 1, 1, "a"))
        self.assertEqual(await self.stored(), [])
        await self.store.claim_job("a", 1000.0, MINUTE)
        key = await self.store.begin_document(CHANGES, 1000.0)
        self.assertTrue(await self.store.finish_document(key, 1, 1, "a"))
