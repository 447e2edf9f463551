"""Checks the database: whether the broker can use it, damage in it, and backups of it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from rsscloud_broker import storage
from rsscloud_broker.commands.doctor_checks.results import CheckContext, Level
from rsscloud_broker.database.disk_space import MEGABYTE
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.runtime import start_checks

#: Seconds that the search for damage may take.
CHECK_SECONDS: Final = 60.0

#: Files of up to this many bytes are backed up on trial; of larger ones the space is compared.
TRIAL_BYTES: Final = 512 * MEGABYTE

#: More unused bytes than this in a file, and more than half of it, are worth a word.
_MUCH_UNUSED: Final = 100 * MEGABYTE

#: Seconds that ``pg_dump`` may take to dump the definitions of the tables.
_DUMP_SECONDS: Final = 30


async def database(context: CheckContext) -> None:
    """Whether the database can be reached, has this version's tables, and grants the rights."""
    shown = storage.shown(context.config.database_url)
    if _cannot_be_reached(context):
        context.warn("database", "it was not checked, since the data cannot be used")
        return
    state, fault = await context.in_thread(
        start_checks.database_state, context.config, context.app_tables
    )
    if fault:
        advice = "correct 'database' in the configuration, or the rights or files of the database"
        context.fail("database", fault, advice)
    elif "migrates" in state and context.runs:
        found = f"{shown}: {state}, but a broker of another version runs"
        context.warn("database", found, "restart the broker when it suits you")
    else:
        context.ok("database", f"{shown}: {state}")


async def integrity(context: CheckContext) -> None:
    """Whether the database is damaged or wastes space; for PostgreSQL, the state of the server."""
    url = context.config.database_url
    if _cannot_be_reached(context):
        return
    if _is_postgresql(url):
        await _check_server(context, url)
        return
    file = storage.database_file(url)
    if file is None or not file.exists():  # nothing is stored yet
        return
    health = await context.in_thread(storage.file_health, file, CHECK_SECONDS)
    size = f"{file} has {_megabytes(health.size)}"
    if health.problems:
        found = f"{file} is damaged: {'; '.join(health.problems[:3])}"
        context.fail("integrity", found, "stop the broker, and restore a backup")
    elif not health.was_all_read:
        found = f"{size}; in {CHECK_SECONDS:g} seconds no damage was found, and not all was read"
        advice = f"check all of it at a quiet time: {_shell_command(file, 'PRAGMA quick_check')}"
        context.warn("integrity", found, advice)
    else:
        context.ok("integrity", f"{size}, and no damage was found")
    if health.free > max(_MUCH_UNUSED, health.size / 2):
        found = f"{_megabytes(health.free)} of {file} are unused; the broker will use them again"
        advice = f"to have them back, stop the broker and run: {_shell_command(file, 'VACUUM')}"
        context.ok("integrity", found, advice)


def _shell_command(file: Path, statement: str) -> str:
    """A shell's command for a statement; it needs Python only, which runs the broker."""
    code = f"import sqlite3; print(*sqlite3.connect({str(file)!r}).execute({statement!r}))"
    return shlex.join(["python3", "-c", code])


async def _check_server(context: CheckContext, url: str) -> None:
    """The state of a PostgreSQL server."""
    try:
        health = await context.in_thread(storage.server_health, url)
    except Unavailable:
        return  # the check of the database has said so
    found = (
        f"PostgreSQL {health.version}, {_megabytes(health.size)}, {health.connections} of"
        f" {health.max_connections} connections in use"
    )
    if health.connections > health.max_connections * 0.9:
        context.warn("server", found, "raise max_connections of the server")
    else:
        context.ok("server", found)
    apart = health.time - context.clock.wall_seconds()
    # The largest difference in seconds between the clocks of two machines that share a database.
    if abs(apart) > 5.0:
        found = f"the clock of the database server differs by {apart:+.0f} seconds"
        context.warn("server", found, "keep both clocks right by NTP")


async def backup(context: CheckContext) -> None:
    """Whether a backup of the database can be made."""
    url = context.config.database_url
    if _cannot_be_reached(context):
        return
    if _is_postgresql(url):
        level, found, advice = await context.in_thread(_try_dump, url)
        context.add(level, "backup", found, advice)
        return
    file = storage.database_file(url)
    if file is None or not file.exists():  # there is nothing to back up yet
        return
    directory = context.existing_data
    status = os.statvfs(directory)
    free, size = status.f_bavail * status.f_frsize, file.stat().st_size
    if free < size:
        found = (
            f"a copy of {file} has {_megabytes(size)}, and {_megabytes(free)} are free on its disk"
        )
        context.warn("backup", found, "make room, or make backups on another disk")
    elif size > TRIAL_BYTES:
        found = f"{_megabytes(free)} are free for a copy of {file} ({_megabytes(size)})"
        context.ok("backup", f"{found}; a trial would have taken long")
    else:
        copied = await context.in_thread(storage.try_backup, file, directory)
        context.ok("backup", f"a trial made a copy of {_megabytes(copied)}")


def _try_dump(url: str) -> tuple[Level, str, str]:
    """Have ``pg_dump`` dump the definitions of the tables; level, fact and advice."""
    program = shutil.which("pg_dump")
    if program is None:
        advice = "install the server's client programs, or make backups on another machine"
        return "warn", "pg_dump, which makes backups, is missing on this machine", advice
    # The password goes through the environment, since everybody can see the arguments.
    target, secret = storage.libpq_arguments(url)
    password = {"PGPASSWORD": secret} if secret else {}
    command = [program, "--schema-only", "--no-password", "--file", os.devnull, "--dbname", target]
    try:
        done = subprocess.run(  # noqa: S603 # pg_dump, with the URL of the configuration
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=_DUMP_SECONDS,
            env={**os.environ, **password},
        )
    except subprocess.TimeoutExpired:
        found = f"pg_dump did not dump the definitions of the tables in {_DUMP_SECONDS} seconds"
        return "warn", found, "see whether another session holds locks"
    if done.returncode:
        said = re.sub(r"^pg_dump: (error: )?", "", done.stderr.strip().splitlines()[0])
        advice = "use a pg_dump of the server's version, as a role that may read all tables"
        return "warn", f"pg_dump cannot read the database: {said}", advice
    return "ok", "pg_dump can read the database", ""


def _cannot_be_reached(context: CheckContext) -> bool:
    """Whether the data directory or the database file cannot be used: that is a result already."""
    return bool(start_checks.file_faults(context.config))


def _is_postgresql(url: str) -> bool:
    return make_url(url).get_backend_name() == "postgresql"


def _megabytes(size: float) -> str:
    return f"{size / MEGABYTE:,.1f} MB"
