"""A proxy before a server, such as a database, that passes its answers on late."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Event, Thread

from tests.e2e.fixture import TIMEOUT


class SlowProxy:
    """Listens on loopback, and passes all bytes on.

    :ivar delay: seconds by which each piece of an answer is late.
    """

    def __init__(self, target: int) -> None:
        self.delay = 0.0
        self._goes_on = Event()
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> int:
        """Begin to listen; the port."""
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        return listening.result(TIMEOUT)

    def stand_still(self) -> None:
        """Pass nothing on, in either direction, and tell nobody, until `go_on`."""
        self._goes_on.clear()
        self._loop.call_soon_threadsafe(self._goes_on.wait)

    def go_on(self) -> None:
        self._goes_on.set()

    def stop(self) -> None:
        self.go_on()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        try:
            far, ask = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            answer.close()
            return
        await asyncio.gather(self._pass(near, ask, late=False), self._pass(far, answer, late=True))

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, late: bool
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if late:
                    await asyncio.sleep(self.delay)
                target.write(data)
                await target.drain()
        target.close()
