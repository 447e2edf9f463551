"""What the checks of the doctor are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from attrs import define, field
from twisted.internet.threads import deferToThreadPool

from rsscloud_broker.client.feed_requests import Ask
from rsscloud_broker.config import Config
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.policy.addresses import is_loopback
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.util.urls import is_localhost

T = TypeVar("T")


@define
class CheckContext:
    """The broker that is examined.

    :ivar config: its configuration.
    :ivar descriptors: how many file descriptors it may need at the same time.
    :ivar doors: the names of the front doors that the configuration enables.
    :ivar ask: makes requests as somebody outside would.
    :ivar config_file: the file of the configuration; None without one.
    :ivar log_file: the file that twistd's ``--logfile`` names; None without one.
    :ivar time_url: a URL whose server tells the time.
    :ivar runs: whether a broker runs with this data directory.
    :ivar arrived: how a request through the public URL arrived at the broker; None until the
        broker has answered.
    """

    config: Config
    descriptors: int
    doors: frozenset[str]
    reactor: Any
    clock: IClock
    ask: Ask
    config_file: str | None = None
    log_file: str | None = None
    time_url: str = ""
    runs: bool = field(init=False)
    arrived: Mapping[str, str] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.runs = data_lock.is_held(self.config.data)

    @property
    def host(self) -> str:
        return urlsplit(self.config.address).hostname or ""

    @property
    def is_local(self) -> bool:
        return is_localhost(self.host) or is_loopback(self.host)

    @property
    def existing_data(self) -> Path:
        """The data directory, or the nearest directory above it that exists."""
        data = Path(self.config.data).absolute()
        return next(each for each in (data, *data.parents) if each.is_dir())

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        pool = self.reactor.getThreadPool()
        result: T = await deferToThreadPool(self.reactor, pool, function, *args)
        return result
