"""What couriers run: ``python -m rsscloud_broker.composition.courier DESCRIPTOR``.

The broker starts the process that loads this, and that forks couriers and parsers: see
``couriers.fork_server``.  They do nothing for anybody before they are confined: see
``couriers.confinement``.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from rsscloud_broker.delivery.notifiers import bundled
from rsscloud_broker.outbound import TLSContext
from rsscloud_broker.outbound.couriers.confinement import Confinement
from rsscloud_broker.outbound.couriers.fork_server import COURIER, PARSER, serve
from rsscloud_broker.outbound.couriers.parser_process import become_parser
from rsscloud_broker.outbound.couriers.process import run
from rsscloud_broker.util.twisted_overrides import uvloop_reactor


def become_courier(descriptor: int) -> None:
    """Run as a courier until the broker needs it no more.

    :param descriptor: the connection to the broker.
    """
    # OpenSSL reads the trusted certificates first, wherever it finds them.
    tls, confinement = TLSContext(), Confinement()
    # Collect garbage seldom: what was loaded is frozen, and the calls under way, which are all that
    # the collector would look through, leave none.
    gc.set_threshold(10_000, 20, 50)
    # A loop that was made before would use io_uring, whose calls the confinement refuses.
    uvloop_reactor.install()
    from twisted.internet import reactor  # noqa: PLC0415 # each courier has its own

    run(descriptor, reactor, tls, confinement, bundled)


_PROGRAMS: Final = {COURIER: ("courier", become_courier), PARSER: ("parser", become_parser)}


def main() -> None:
    """Fork what the broker orders at the descriptor that is named on the command line."""
    # Should C code crash, the broker's log has where.
    faulthandler.enable(all_threads=False)
    os.chdir("/")
    if forked := serve(int(sys.argv[1])):
        order, descriptor = forked
        name, program = _PROGRAMS[order]
        with suppress(OSError):  # where there is such a file, ps and top show the name
            Path("/proc/self/comm").write_text(name, encoding="ascii")
        program(descriptor)


if __name__ == "__main__":
    main()
