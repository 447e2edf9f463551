"""A notification broker for the open web.

Front doors take a request in, the broker stores a fact and says so on the
event bus, sinks react, notifiers carry it out::

    front_doors ──> core (IBroker) ──> storage (IStore)
                         │ after the fact is stored
                         ▼
                     bus (IEventBus) ──> sinks ──> notifiers ──> outbound

Where to look:

``model``        what the broker talks about: topics, subscriptions, pings
``events``       the facts that travel on the bus
``interfaces``   every interface; read this first
``tap``          composes the parts into one service: the only file that knows all
``commands``     the ``rsscloud-broker`` command
``discovery``    finds plugins, whose parts ``making`` makes
``start_checks`` what must be so on this machine before the broker can start
``config``       the TOML configuration
``reloading``    has the parts take another configuration while they run
``logs``         what is logged, where to and in which form
``options``      from a TOML table to an attrs class, checked
``wire``         codecs of every protocol, without input or output
``front_doors``  what listens: one module for each inbound protocol
``core``         the verbs (ping, subscribe), change detection, dropping what has ended
``bus``          the event bus: a bounded queue for each sink
``sinks``        what reacts to events: distribution, change lists, archives
``notifiers``    what calls subscribers back: one module for each protocol
``outbound``     every connection the broker makes, and the guard over them
``storage``      tables, the store with its one writer, migrations
``web``          pages for people
``client``       the other side: what pings a broker and what is notified by one
``plugins``      where makers of front doors, notifiers and sinks are found
``testing``      fakes and contract tests, for authors of plugins too
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rsscloud-broker")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0"
