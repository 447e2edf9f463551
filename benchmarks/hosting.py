"""Measures how fast stored feeds are served, and how fast they are saved."""

from __future__ import annotations

import time
from base64 import b64encode
from email.utils import formatdate
from xml.sax.saxutils import escape

from benchmarks.broker import Broker, Data
from benchmarks.change_list import get
from benchmarks.pings import CONNECTIONS, XML, pings
from benchmarks.processes import Deadline, Failed, Helper, Sample, answered
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings
from rsscloud_broker.accounts import Hasher
from rsscloud_broker.config.accounts import AccountsConfig
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.accounts import add_account

PASSWORD = "correct horse"  # of nobody

#: How large the served feed is, in bytes.
SIZE = 20_000

#: Passwords are hashed quickly here: each is hashed once, before the measurement begins.
_QUICK = AccountsConfig(hash_memory_kib=8192)
_CONFIG = """
[apps.hosting]
enabled = true
saves_per_account = 100
[accounts]
hash_memory_kib = 8192
attempts_per_source = 1000
"""

#: The broker checks at most this many passwords at once.
_WARM_UP_CONNECTIONS = 20

_ITEM = (
    "<item><title>Message {number}</title><link>http://author{{n}}.example/{number}</link>"
    "<description>A message of a hundred characters or so, which somebody wrote just now in round "
    "{round}.</description></item>"
)
_CALL = (
    '<?xml version="1.0"?>\n<methodCall><methodName>rssCloud.saveRss</methodName><params>'
    "<param><value><string>author{n}</string></value></param>"
    f"<param><value><string>{PASSWORD}</string></value></param>"
    "<param><value><string>%s</string></value></param></params></methodCall>"
)


def serving(settings: Settings) -> list[Line]:
    """GET of a stored feed, and a conditional GET that is answered 304."""
    deadline = settings.deadline()
    count = settings.count or 10_000
    data = Data.make(settings.directory / "data")
    _add_accounts(data, 1)
    since = {"If-Modified-Since": formatdate(time.time() + 3600, usegmt=True)}
    bare, ours, bare_unchanged, unchanged = [], [], [], []
    with (
        Broker(data, deadline, more=_CONFIG) as broker,
        Helper("floor_servers", deadline, size=SIZE) as file,
    ):
        _put(broker, _feed(SIZE))
        path = "/feeds/author0/rss.xml"
        if len(broker.get(path, 200)) != SIZE:
            raise Failed("the feed has another size than the file")
        for _ in range(settings.rounds):
            bare.append(get(file, file.port, "/file", {}, 200, count, deadline))
            ours.append(get(broker, broker.port, path, {}, 200, count, deadline))
            bare_unchanged.append(get(file, file.port, "/file", since, 304, count, deadline))
            unchanged.append(get(broker, broker.port, path, since, 304, count, deadline))
        peak = broker.peak_megabytes()
    work = f"GET a stored feed of {SIZE:,} bytes"
    targets = [Target.at_least(ratio(ours, bare), 0.7)]
    targets_unchanged = [Target.at_least(ratio(unchanged, bare_unchanged), 0.7)]
    return [
        Line(work, "answers/s", ours, peak, bare, targets),
        Line(f"{work}: 304", "answers/s", unchanged, peak, bare_unchanged, targets_unchanged),
    ]


def saving(settings: Settings) -> list[Line]:
    """``rssCloud.saveRss`` by XML-RPC; the broker stores each feed before it answers.

    The floor are pings by XML-RPC at the same broker.
    """
    deadline = settings.deadline()
    count = settings.count or 10_000
    data = Data.make(settings.directory / "data")
    _add_accounts(data, count)
    bare, ours = [], []
    with Broker(data, deadline, more=_CONFIG) as broker:
        _save(broker, 0, count, _WARM_UP_CONNECTIONS, deadline)
        for number in range(1, settings.rounds + 1):
            bare.append(pings(broker, broker.port, number * count, count, deadline))
            ours.append(_save(broker, number, count, CONNECTIONS, deadline))
        peak = broker.peak_megabytes()
    # The broker has been killed; every feed that it acknowledged must be stored all the same.
    saves = (settings.rounds + 1) * count
    if data.count("hosting_version") != saves:
        raise Failed(f"{saves} feeds were saved, {data.count('hosting_version')} are kept")
    work = f"saveRss by XML-RPC of {count:,} accounts, {CONNECTIONS} connections (floor: our pings)"
    targets = [Target.at_least(ratio(ours, bare), 0.5)]
    return [Line(work, "saves/s", ours, peak, bare, targets)]


def _save(broker: Broker, number: int, count: int, connections: int, deadline: Deadline) -> Sample:
    """How many feeds a second the broker stores, one of each account."""
    items = "".join(_ITEM.format(number=each, round=number) for each in range(5))
    feed = f'<?xml version="1.0"?>\n<rss version="2.0"><channel>{items}</channel></rss>'
    body = _CALL % escape(feed)
    call = {"path": "/RPC2", "headers": XML, "body": body}
    sample, answer = answered(
        broker, broker.port, count, deadline, connections, 0, "/feeds/author", **call
    )
    if answer["statuses"] != {"200": count} or answer["as_expected"] != count:
        raise Failed(
            f"of {count} saves {answer['as_expected']} were accepted, with the statuses "
            f"{answer['statuses']}: all must be"
        )
    return sample


def _feed(size: int) -> bytes:
    feed = '<?xml version="1.0"?>\n<rss version="2.0"><channel><title>%s</title></channel></rss>'
    return (feed % ("x" * (size - len(feed) + 2))).encode()


def _put(broker: Broker, feed: bytes) -> None:
    said = b64encode(f"author0:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {said}"}
    broker.request("PUT", "/feeds/author0/rss.xml", 201, feed, headers)


def _add_accounts(data: Data, count: int) -> None:
    """Add accounts that all have the same password."""
    hashed = Hasher(_QUICK).hash(PASSWORD)
    with open_database(data.url) as connection:
        for number in range(count):
            add_account(connection, f"author{number}", hashed, False, time.time())
