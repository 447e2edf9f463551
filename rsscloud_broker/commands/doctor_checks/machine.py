"""Checks the machine: the data directory, the log, the disk, endpoints, descriptors, caches."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Final

import rsscloud_broker.plugins
import twisted.plugins
from rsscloud_broker import storage
from rsscloud_broker.commands.doctor_checks.results import CheckContext
from rsscloud_broker.database.disk_space import MEGABYTE
from rsscloud_broker.runtime import start_checks

#: On a disk with less than this many times the required space free, the doctor warns.
_PLENTY: Final = 5


def broker(context: CheckContext) -> None:
    """Whether the broker runs."""
    data = context.config.data
    if context.runs:
        context.ok("broker", f"it runs with the data in {data}")
    else:
        context.warn(
            "broker",
            f"no broker runs with the data in {data}, so how requests arrive cannot be checked",
            "start it, and run the doctor again, as the broker's user",
        )


def data(context: CheckContext) -> None:
    """Whether the broker may use the data directory, and nobody else may read its secrets."""
    config = context.config
    faults = start_checks.file_faults(config)
    if faults:
        for fault in faults:
            context.fail("data", fault)
        return
    state = "can be written" if os.path.isdir(config.data) else "will be made"
    context.ok("data", f"{config.data} {state}")
    if note := start_checks.root_warning(config):
        context.warn("data", note)
    secrets = [(storage.database_file(config.database_url), "the secrets of subscribers")]
    if context.config_file:
        secrets.append((Path(context.config_file), _secrets_of(context)))
    for file, what in secrets:
        if file and what and file.exists() and stat.S_IMODE(file.stat().st_mode) & stat.S_IROTH:
            found = f"every user of this machine may read {file}, which holds {what}"
            context.warn("data", found, f"chmod o-rwx {file}")


def _secrets_of(context: CheckContext) -> str:
    """What the configuration file holds that others must not read; empty if nothing."""
    publishers = context.config.front_doors.get("resourcesync", {}).get("publishers", ())
    if any("token" in publisher for publisher in publishers if isinstance(publisher, dict)):
        return "the tokens of publishers"
    if context.config.metrics.token:
        return "the token of the metrics"
    url = context.config.database_url
    return "the password of the database" if start_checks.has_password(url) else ""


def log(context: CheckContext) -> None:
    """Whether the log file can be written; twistd decides where the log goes."""
    if context.log_file is None:
        return
    faults = start_checks.log_faults(Path(context.log_file).absolute())
    for fault in faults:
        context.fail("log", fault)
    if not faults:
        context.ok("log", f"{context.log_file} can be written")


def disk(context: CheckContext) -> None:
    """Whether enough of the disk is free, in bytes and in files."""
    status = os.statvfs(context.existing_data)
    free, size = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    required = storage.required_space(context.config.storage.min_free_mb * MEGABYTE, size)
    found = (
        f"{free / MEGABYTE:,.0f} MB of {size / MEGABYTE:,.0f} MB are free on the disk of"
        f" {context.config.data}"
    )
    if free < required:
        rule = f"{required / MEGABYTE:,.0f} MB must be free, so the broker accepts nothing new"
        advice = "make room there, or lower min_free_mb in [storage]"
        context.fail("disk", f"{found}, and {rule}", advice)
    elif free < required * _PLENTY:
        rule = f"below {required / MEGABYTE:,.0f} MB the broker accepts nothing new"
        context.warn("disk", f"{found}; {rule}", "make room there soon")
    else:
        context.ok("disk", found)
    # On a disk with fewer free inodes than this, the doctor warns.
    if status.f_files and status.f_favail < 10_000:
        found = f"only {status.f_favail:,} more files can be made on the disk of the data"
        context.warn("disk", found, "remove files that nobody needs (df -i)")


def endpoints(context: CheckContext) -> None:
    """Whether the broker could listen, or does."""
    config = context.config
    for description in config.all_listen:
        findings = start_checks.Findings("", "")
        start_checks.try_endpoint(description, config.data, findings)
        for fault in findings.faults:
            context.fail("endpoint", fault)
        for note in findings.notes:
            context.ok("endpoint", note)
        if not findings.faults and not findings.notes:
            if context.runs:
                found = f"the broker runs, but nobody listens on {description}"
                advice = "give the doctor the options of the broker (--listen), or restart it"
                context.warn("endpoint", found, advice)
            else:
                context.ok("endpoint", f"the broker could listen on {description}")


def descriptors(context: CheckContext) -> None:
    """Whether the process may open enough files and connections."""
    needed = context.descriptors
    if context.arrived is not None:
        allowed, whose = int(context.arrived.get("descriptors", 0)), "the running broker"
    else:
        allowed, whose = getrlimit(RLIMIT_NOFILE)[1], "a process of this user"
    if allowed == RLIM_INFINITY or allowed >= needed:
        shown = "any number of" if allowed == RLIM_INFINITY else f"{allowed:,}"
        found = f"{whose} may open {shown} file descriptors, and {needed:,} may be needed"
        context.ok("descriptors", found)
        return
    context.warn(
        "descriptors",
        f"{whose} may open {allowed:,} file descriptors, and the configured number of connections"
        f" needs {needed:,}; further connections would wait or be refused",
        "raise the limit (LimitNOFILE= of the service, or ulimit -Hn), or lower max_connections",
    )


def plugin_caches(context: CheckContext) -> None:
    """Whether Twisted's caches of plugins are up to date, or can be written."""
    for package in (twisted.plugins, rsscloud_broker.plugins):
        for directory in map(Path, package.__path__):
            modules = [file for file in directory.glob("*.py") if file.name != "__init__.py"]
            if not modules:
                continue
            cache = directory / "dropin.cache"
            newest = max(file.stat().st_mtime for file in modules)
            if cache.exists() and cache.stat().st_mtime >= newest:
                context.ok("plugin cache", f"{cache} is up to date")
            elif os.access(directory, os.W_OK, effective_ids=True):
                context.ok("plugin cache", f"{cache} will be written at the next start")
            else:
                context.warn(
                    "plugin cache",
                    f"{cache} is out of date, and this user may not write it, so each start is"
                    " slower and Twisted logs an error",
                    "as root, run: twistd --help > /dev/null; rsscloud-broker plugins > /dev/null",
                )
