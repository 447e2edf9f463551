"""The interface of work that one node does for all: jobs, and files for crawlers."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from zope.interface import Interface

from rsscloud_broker.model.shared import JobTurn, SharedDocument


class IJobs(Interface):
    """Has one node at a time do a job for all nodes that work on a database.

    ``util.cluster_jobs`` uses it.  Every method raises ``Unavailable``
    if the database cannot be used now.
    """

    def shares_work() -> bool:
        """Whether other nodes may work on the database.  On SQLite none can."""

    def claim_job(name: str, now: float, period: float) -> Awaitable[JobTurn]:
        """Claim a job, if it is due and no other node has claimed it.

        A node that has claimed it, and has not lost the claim, claims it again.

        A job whose name is new is due.

        :param now: the time, in seconds since the epoch.
        :param period: in how many seconds it is due again, at most: a later time in the row was set
            by a clock that was wrong, and counts as due.
        """

    def finish_job(name: str, due_at: float) -> Awaitable[bool]:
        """Note that a job is done, and end the claim of this process.

        :param due_at: when it is due next.
        :returns: False if this process has lost the claim; then nothing was stored.
        """

    def release_job(name: str) -> Awaitable[None]:
        """End the claim of this process.  The job is as due as before."""

    def request_job(name: str, since: float) -> Awaitable[None]:
        """Make a job due that has work from an earlier time to do.

        A node that does it now loses its claim, so that the job is done once more after that.

        :param since: the earlier time.
        """

    def hint_at_job(name: str) -> Awaitable[None]:
        """Tell all nodes that the one that does a job has something to do now.

        Each publishes ``WorkHinted("job.NAME")`` on its bus, this one too.  The hint may be lost,
        so the node that does the job also looks by itself.  Nothing happens where no other node can
        work on the database.

        :param name: the name of the job: letters, digits and underscores.
        """


class ISharedWork(IJobs):
    """Jobs, and documents: the files for crawlers that one node makes and all nodes serve.

    Documents are stored only if ``shares_work``.
    """

    def begin_document(name: str, made_at: float) -> Awaitable[int]:
        """Begin to store a version of a document; an unfinished one of that name is dropped.

        :param name: the path at which it is served, such as ``/2026/09/29/12.xml``.
        :returns: the id of the version.
        """

    def put_document_part(key: int, number: int, body: bytes) -> Awaitable[bool]:
        """Store a part of an unfinished version.

        :param key: the id of the version.
        :param number: 0 for the first part.
        :param body: some of the bytes of the gzipped document.
        :returns: False if the version was dropped.
        """

    def finish_document(key: int, size: int, records: int, job: str = ...) -> Awaitable[bool]:
        """Put a version in the place of the one before, if all its parts are there.

        :param size: the bytes of the document, not gzipped.
        :param records: how many pings are listed in it, which must be more than in the version
            before; 0 if it is no list of pings.
        :param job: the job that made it, whose claim this process must still have; empty if none.
        :returns: False if it is dropped, by these conditions or by another node.
        """

    def shared_documents(names: Collection[str]) -> Awaitable[list[SharedDocument]]:
        """The present versions of some documents, in any order; none of one that is not stored."""

    def documents_since(
        stored_at: float, after: str, limit: int
    ) -> Awaitable[list[SharedDocument]]:
        """The present versions that were stored after a time, by name.

        A version may appear some seconds late, behind one that was stored after it.

        :param stored_at: by the clock of the database.
        :param after: the name of the last document of the page before; empty at first.
        """

    def document_part(key: int, number: int) -> Awaitable[bytes | None]:
        """A part of a version; None after its last part, or if there is a newer version."""
