"""A fake of the jobs that one node does for all, for tests."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.interfaces import IJobs
from rsscloud_broker.model.shared import JobTurn


@implementer(IJobs)
class FakeJobs:
    """The jobs of the only node, which may do each whenever it wants to.

    :ivar shares: what ``shares_work`` returns.
    :ivar hinted: the name of each job of which ``hint_at_job`` said that there is something to do.
    """

    def __init__(self) -> None:
        self.shares = False
        self.hinted: list[str] = []

    def shares_work(self) -> bool:
        return self.shares

    async def claim_job(self, name: str, now: float, period: float) -> JobTurn:
        return JobTurn(now, claimed=True, is_others=False)

    async def finish_job(self, name: str, due_at: float) -> bool:
        """Say that this node still had its claim; when the job is due next is not kept."""
        return True

    async def release_job(self, name: str) -> None:
        pass

    async def hint_at_job(self, name: str) -> None:
        self.hinted.append(name)

    async def request_job(self, name: str, since: float) -> None:
        pass
