"""Closes connections to a PostgreSQL that does not answer.

The limits of libpq end a wait only if the other machine does not answer at all.  If the server, its
disk or a proxy before it stands still, the system of that machine goes on answering, and a thread
would wait forever.

The heartbeat of the node notices earlier that the server does not answer.  From then on nobody
waits: see ``StoreThreads.give_up``.

Only ``set_read_timeout`` imports the driver, which is installed for PostgreSQL alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any

from sqlalchemy import Engine, event

#: Why an operation was given up.
GIVEN_UP = "the server does not answer the heartbeat of this node either"


def set_read_timeout(
    engine: Engine, seconds: float, is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Close each connection of an engine on which a statement gets no answer for ``seconds``.

    The statement then fails with the driver's ``OperationalError``.

    :param engine: an engine for PostgreSQL.
    :param is_given_up: whether the server is known not to answer, so that no thread waits for it
        and none connects to it.  It is called in the threads.
    """
    psycopg: Any = import_module("psycopg")

    class LimitedConnection(psycopg.Connection):  # type: ignore[misc] # known when it runs
        """A connection whose waits end.  All methods of a connection wait by ``wait``."""

        def wait(self, gen: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
            return super().wait(self._limited(gen), *args, **more)

        def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            """What a generator of the driver yields and returns, for a limited time.

            It yields what the connection waits for, and is sent what has happened: 0 if nothing
            has happened for a tenth of a second.
            """
            until = time.monotonic() + seconds
            try:
                waits_for = next(gen)
                while True:
                    happened = yield waits_for
                    if not happened and (is_given_up() or time.monotonic() > until):
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            GIVEN_UP
                            if is_given_up()
                            else f"the server has not answered for {seconds:g} seconds"
                        )
                    waits_for = gen.send(happened)
            except StopIteration as end:
                return end.value

    def connect(dialect: object, record: object, args: Any, options: Any) -> Any:
        if is_given_up():
            raise psycopg.OperationalError(GIVEN_UP)
        return LimitedConnection.connect(*args, **options)

    event.listen(engine, "do_connect", connect)
