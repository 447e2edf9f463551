"""Checks whether the broker can start on this machine: its data directory, database and ports.

Both the start and ``check-config`` use these checks, so both give the same errors.  The checks
change nothing: they leave no file and no table behind, and do not disturb a running broker.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile

from attrs import field, frozen
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rsscloud_broker import storage
from rsscloud_broker.config import Config
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http import listening
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.storage import NO_APPS
from rsscloud_broker.wire.text import clean

#: The warning if ``public_url`` is not set; the broker starts all the same.  ``--local`` sets it.
DERIVED_URL = (
    "public_url is not set: subscribers, hubs and crawlers are sent URLs under {url}, which "
    "leads nowhere on other machines; set public_url in the configuration (or --public-url) to the "
    "address by which others reach the broker."
)


@frozen
class Findings:
    """The result of the checks.

    :ivar data: the state of the data directory, for people.
    :ivar database: the state of the database, for people; empty if it cannot be used.
    :ivar faults: what would keep the broker from starting, a sentence for each.
    :ivar notes: what else the operator should know, a sentence for each.
    """

    data: str
    database: str
    faults: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)


def examine(config: Config, apps: Mapping[str, AppTables] = NO_APPS) -> Findings:
    """Check whether a broker could start with a configuration, now and on this machine.

    Blocks, for some seconds if the database does not answer.

    :param config: its endpoints must have passed ``listening.check_endpoints``.
    :param apps: the tables of the applications that run, by their names.
    """
    faults = file_faults(config)
    database, fault = ("", "") if faults else database_state(config, apps)
    faults.extend(filter(None, [fault]))
    exists = os.path.isdir(config.data)
    findings = Findings("can be written" if exists else "will be made", database, faults)
    for description in config.all_listen:
        try_endpoint(description, config.data, findings)
    findings.notes.extend(filter(None, [root_warning(config), archives_warning(config)]))
    return findings


def root_warning(config: Config) -> str:
    """A warning to root, to whom all files seem well; empty for others, and for data of root's."""
    if os.geteuid() != 0 or not os.path.isdir(config.data):
        return ""
    owner = Path(config.data).stat().st_uid
    if owner == 0:
        return ""
    return (
        f"this check ran as root, who may do anything, and {config.data} belongs to "
        f"{_user(owner)}: run it as that user (runuser -u {_user(owner)} -- ...)"
    )


def archives_warning(config: Config) -> str:
    """A warning if a followed feed brings pings that are too old for any archive; else empty."""
    archive, follows = config.sinks.get("archive", {}), config.front_doors.get("follows", {})
    if not (archive.get("enabled", True) and follows.get("enabled", True)):
        return ""
    kept = archive.get("keep_hours", 168)  # these are the defaults of both plugins
    taken = max((each.get("catch_up_hours", 24) for each in follows.get("feeds", ())), default=0)
    if taken <= kept:
        return ""
    return (
        f"a feed in [front_doors.follows] has catch_up_hours = {taken}, and [sinks.archive] has "
        f"keep_hours = {kept}: pings that are taken in after more than {kept} hours come into no "
        "archive; make keep_hours larger"
    )


def database_state(config: Config, apps: Mapping[str, AppTables] = NO_APPS) -> tuple[str, str]:
    """What the start would do with the database, and why it cannot be used; one of them is empty.

    :param config: names the database.  The file of an SQLite database need not exist, but must
        have passed ``file_faults``.
    :param apps: the tables of the applications that run, by their names.
    """
    url = config.database_url
    file = storage.database_file(url)
    if file is not None and not file.exists():
        return "will be made", ""
    try:
        found = storage.examine(url, apps, config.public_url)
    except (SQLAlchemyError, Unavailable, storage.UnfitDatabase) as error:
        return "", database_fault(url, error)
    if not found.revision:
        return f"has no tables yet; the start makes those of revision {found.latest}", ""
    if found.revision != found.latest:
        return f"revision {found.revision}; the start migrates it to {found.latest}", ""
    return f"revision {found.revision}, which is up to date", ""


def database_fault(url: str, error: Exception) -> str:
    """Why a database cannot be used, as a sentence with its URL."""
    reason = error.orig if isinstance(error, DBAPIError) else error
    return f"{storage.shown(url)}: {clean(str(reason))}"


def try_endpoint(description: str, data: str, findings: Findings) -> None:
    """Check whether the broker could listen at an endpoint, and add the result to ``findings``."""
    if not listening.can_be_tried(description):
        findings.notes.append(f"{description} was not tried: it is not opened by the broker itself")
    elif (error := listening.listening_error(description)) is None:
        return
    elif listening.is_busy(error) and data_lock.is_held(data):
        findings.notes.append(f"{description} is in use: a broker runs with this data already")
    else:
        findings.faults.append(listening.sentence(error))


def file_faults(config: Config) -> list[str]:
    """Why the data directory, the database file or the access log is unusable, in sentences."""
    data = Path(config.data)
    faults = list(_faults_of_directory(data, "--data names another directory"))
    if not faults and data.is_dir():
        known = (data / "lock", data / "public", *_directories(data / "public"))
        faults.extend(_faults_of_files(known, "--data names another directory"))
    database = storage.database_file(config.database_url)
    if database is not None and not faults:
        other = "'database' in the configuration names another file"
        faults.extend(_faults_of_directory(database.parent, other))
        if not faults:
            beside = (Path(f"{database}{suffix}") for suffix in ("-wal", "-shm", ".lock"))
            faults.extend(_faults_of_files((database, *beside), other))
        is_used = data_lock.is_held(str(database.parent), f"{database.name}.lock")
        if is_used and not data_lock.is_held(config.data):
            faults.append(f"a broker with other data works on {database}: stop it, or {other}")
    if config.log.access not in {"", "-"}:
        faults.extend(_faults_of_log(Path(config.log.access)))
    return faults


def has_password(url: str) -> bool:
    """Whether an SQLAlchemy URL contains a password."""
    parsed = make_url(url)
    return bool(parsed.password or parsed.query.get("password"))


def log_faults(file: Path) -> list[str]:
    """Why a log file cannot be written, a sentence for each fault."""
    other = "--logfile names another file"
    return [*_faults_of_directory(file.parent, other)] or [*_faults_of_files((file,), other)]


def _faults_of_log(path: Path) -> Iterator[str]:
    """Why lines cannot be appended to a log file, which need not exist yet."""
    parent, me = path.absolute().parent, _user(os.geteuid())
    other = "or name another file in [log] access"
    # These functions of os.path also say no if the path may not be looked at.
    if os.path.isdir(path):
        yield f"the access log {path} is a directory: name a file in [log] access"
    elif not os.path.isdir(parent):
        yield (
            f"the access log {path} cannot be made: {parent} is no directory, or {me} may not look "
            f"at it; make it for {me} (install -d -o {me} {parent}), {other}"
        )
    elif os.path.exists(path):
        if not os.access(path, os.W_OK, effective_ids=True):
            yield f"the access log {path} cannot be written by {me}: chown {me} {path}, {other}"
    elif not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
        yield f"the access log {path} cannot be made, as {me} may not write in {parent}, {other}"


def _directories(parent: Path) -> list[Path]:
    """The directories in a directory; none if it does not exist or cannot be read."""
    try:
        return [Path(entry.path) for entry in os.scandir(parent) if entry.is_dir()]
    except OSError:
        return []


def _faults_of_directory(path: Path, other: str) -> Iterator[str]:
    """Why files cannot be created in a directory, which need not exist yet."""
    nearest = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))
    me = _user(os.geteuid())
    if not nearest.is_dir():
        yield f"{nearest} is no directory, so nothing can be kept in {path}; {other}"
    elif not os.access(nearest, os.X_OK, effective_ids=True):
        yield f"{path} cannot be reached: {me} may not enter {nearest}; {other}"
    elif (fault := _access_fault(nearest)) and nearest == path:
        yield f"{fault}, or {other}"
    elif fault:
        yield (
            f"{path} is not there, and {me} may not make it in {nearest}: make it for {me} "
            f"(install -d -o {me} {path}), or {other}"
        )
    else:
        try:
            TemporaryFile(dir=nearest).close()
        except OSError as error:
            yield f"no file can be made in {nearest}: {error.strerror}; {other}"


def _faults_of_files(paths: tuple[Path, ...], other: str) -> Iterator[str]:
    """Why files or directories cannot be written; those that do not exist are skipped."""
    for path in paths:
        if os.path.exists(path) and (fault := _access_fault(path)):
            yield f"{fault}, or {other}"


def _access_fault(path: Path) -> str:
    """Why this process cannot read and write a file or a directory; empty if it can."""
    wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    if os.access(path, wanted, effective_ids=True):
        return ""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path} is on a file system that is mounted read-only: mount it for writing"
    status, me = path.stat(), _user(os.geteuid())
    owner, mode = _user(status.st_uid), stat.filemode(status.st_mode)
    if status.st_uid == os.geteuid():
        return f"{path} cannot be written by its owner {me} ({mode}): chmod -R u+rwX {path}"
    as_owner = f", start the broker as {owner}" if status.st_uid else ""  # never suggest root
    return (
        f"{path} belongs to {owner} ({mode}), and the broker runs as {me}: "
        f"chown -R {me} {path}{as_owner}"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
