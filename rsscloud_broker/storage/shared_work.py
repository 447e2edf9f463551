"""The part of the store with which nodes share work: jobs, and the documents that they make."""

from __future__ import annotations

from sqlalchemy import Connection
from twisted.internet.defer import Deferred, succeed

from rsscloud_broker.database.methods import reading, writing
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.model.shared import JobTurn
from rsscloud_broker.storage import jobs, nodes
from rsscloud_broker.storage import shared_documents as rows
from rsscloud_broker.storage.hints import FREED, JOB, hint
from rsscloud_broker.util.deferreds import returns_deferred


class SharedWork:
    """Implements ``IJobs``, for ``Store``, and stores documents: see ``shared_documents``.

    To store a version of a document, begin it, which returns the id of the version; put its parts,
    by their numbers; and finish it.  The last two return False if the version was dropped.
    Documents are stored only if ``shares_work``.
    """

    _database: StoreThreads
    _is_alone: bool
    _node: int | None

    def _ensure_node(self, conn: Connection) -> int:
        """Return the node id of this process, and register it if need be."""
        raise NotImplementedError

    def shares_work(self) -> bool:
        """Whether other nodes can work on the database, which they can on PostgreSQL only."""
        return not self._is_alone

    @returns_deferred
    async def hand_back(self) -> None:
        """Free what this node has claimed, portion by portion: see ``nodes.hand_back``.

        Each portion is freed with a hint to other nodes.
        """
        if self._is_alone:
            return

        def free(conn: Connection) -> bool:
            """Whether there may be more to free after this portion."""
            hint(conn, FREED)
            return nodes.hand_back(conn, self._node)

        while await self._database.write(free):
            pass  # the next portion

    # jobs

    late_jobs = reading(jobs.late_jobs)

    def claim_job(self, name: str, now: float, period: float) -> Deferred[JobTurn]:
        """Claim a job for this node, if it is due and no other node has claimed it."""
        return self._database.write(
            lambda conn: jobs.claim_job(conn, name, now, period, self._ensure_node(conn))
        )

    def finish_job(self, name: str, due_at: float) -> Deferred[bool]:
        """Store when a job is due next, and end its claim; False if this node has lost that."""
        return self._database.write(lambda conn: jobs.finish_job(conn, name, due_at, self._node))

    def release_job(self, name: str) -> Deferred[None]:
        """End the claim of a job that is not done, so that another node does it."""
        return self._database.write(lambda conn: jobs.release_job(conn, name, self._node))

    request_job = writing(jobs.request_job)

    def hint_at_job(self, name: str) -> Deferred[None]:
        """Send other nodes the hint that the node with a job has something to do."""
        if self._is_alone:
            return succeed(None)
        return self._database.write(lambda conn: hint(conn, f"{JOB}{name}"))

    # documents

    begin_document = writing(rows.begin_document)
    put_document_part = writing(rows.put_document_part)

    def finish_document(self, key: int, size: int, records: int, job: str = "") -> Deferred[bool]:
        return self._database.write(
            lambda conn: self._finish_document(conn, key, size, records, job)
        )

    def _finish_document(
        self, conn: Connection, key: int, size: int, records: int, job: str
    ) -> bool:
        """Finish a version of a document, or drop it, if the claim of its job was lost.

        :param job: the job that made it, whose claim this process must still have; empty if none.
        """
        if job and not jobs.lock_claim(conn, job, self._node):
            rows.drop_document(conn, key)
            return False
        return rows.finish_document(conn, key, size, records)

    shared_documents = reading(rows.shared_documents)
    documents_since = reading(rows.documents_since)
    document_part = reading(rows.document_part_body)
