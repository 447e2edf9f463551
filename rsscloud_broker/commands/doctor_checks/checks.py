"""Runs all checks, in an order in which the first failure is mostly the cause of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands.doctor_checks import database, machine, network, outside
from rsscloud_broker.commands.doctor_checks.results import CheckContext, Result
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.wire.self_test import WrongBroker

#: The checks, by their names.  Those that wait for others are coroutine functions.
_CHECKS: Final[Mapping[str, Callable[[CheckContext], Awaitable[None] | None]]] = {
    "broker": machine.broker,
    "data": machine.data,
    "log": machine.log,
    "disk": machine.disk,
    "database": database.database,
    "integrity": database.integrity,
    "backup": database.backup,
    "endpoints": machine.endpoints,
    "plugin cache": machine.plugin_caches,
    "egress": network.egress,
    "names": network.names,
    "neighbours": network.neighbours,
    "public URL": outside.public_url,
    "proxy": outside.proxy,
    "certificate": outside.certificates,
    "descriptors": machine.descriptors,
    "clock": network.clock,
}


async def examine(context: CheckContext) -> list[Result]:
    """Run all checks.  A check that fails in itself is a result, too."""
    for name, check in _CHECKS.items():
        try:
            waiting = check(context)
            if waiting is not None:
                await waiting
        except (ClientError, OSError, Unavailable, WrongBroker) as error:
            advice = "fix that, and run the doctor again"
            context.fail(name, f"this could not be checked: {error}", advice)
    return context.results
