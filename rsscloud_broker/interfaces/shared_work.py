"""The interface of jobs: work that one node does for all."""

from __future__ import annotations

from collections.abc import Awaitable

from zope.interface import Interface

from rsscloud_broker.model.shared import JobTurn


class IJobs(Interface):
    """Has one node at a time do a job for all nodes that work on a database.

    ``util.cluster_jobs`` uses it.  Every method raises ``Unavailable``
    if the database cannot be used now.
    """

    def shares_work() -> bool:
        """Whether other nodes may work on the database.  On SQLite none can."""

    def claim_job(name: str, now: float, period: float) -> Awaitable[JobTurn]:
        """Claim a job, if it is due and no other node has claimed it.

        A node that has claimed the job, and has not lost the claim, claims it again.  A job whose
        name is new is due.

        :param now: the time, in seconds since the epoch.
        :param period: the most seconds until the job is due again.  If the database has a later
            time, a clock was wrong that set it, and the job is due.
        :returns: whether this node has claimed the job, and since when that is due.
        """

    def finish_job(name: str, due_at: float) -> Awaitable[bool]:
        """Note that a job is done, and end the claim of this process.

        :param due_at: when it is due next.
        :returns: True; or False if this process has lost the claim, and then nothing was stored.
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
