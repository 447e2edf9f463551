"""A notification broker for the open web.

A front door takes a request in.  The broker stores a fact and publishes an event on
the event bus.  Sinks react to events, and notifiers call the subscribers::

    front_doors ──> core (IBroker) ──> storage (IStore)
                         │ after the fact is stored
                         ▼
                     bus (IEventBus) ──> sinks ──> notifiers ──> outbound

Where to look:

``model``        the values that the broker works with: topics, subscriptions, pings
``records``      the work that the store keeps: fan-outs, deliveries, poll plans
``shared_records`` what brokers share: relays, followed lists, jobs
``admin_records`` what administrators see and change
``log_entries``  the entries of the event log, and filters of them
``disclosure``   how much strangers see of callbacks and of addresses
``errors``       the errors that the broker raises
``events``       the events that are published on the bus
``interfaces``   every interface; read this first
``tap``          composes the parts into one service: the only file that knows all
``starting``     what twistd loads: it loads ``tap``, and saves time meanwhile
``commands``     the ``rsscloud-broker`` command
``service``      starts the parts of a broker in order, and stops them
``doctor``       checks an installed broker, for its operator
``discovery``    finds plugins and selects those that run
``making``       makes the parts of plugins, and names the plugin that fails
``observing``    composes metrics, health and the access log
``start_checks`` checks data directory, database and ports before a start
``account_parts`` makes the parts of accounts
``app_parts``    makes the applications
``local_sign_in``  prints a link that signs in whoever started the broker
``outbound_parts``  makes the clients that call other servers
``courier_process``  what a courier runs, a child process of the broker
``config``       the TOML configuration
``reloading``    applies a changed configuration while the broker runs
``self_test``    answers the doctor, which tests how requests arrive
``blocks``       what administrators have blocked, in memory
``logs``         writes the log, as text or JSON
``options``      turns a TOML table into an attrs class, and checks it
``wire``         codecs of every protocol, without input or output
``front_doors``  the inbound protocols, a module for each
``core``         pings, subscriptions, change detection, polling, rate limits
``bus``          the event bus: a bounded queue for each sink
``sinks``        handle events: distribution, change lists, archives
``notifiers``    call subscribers: a module for each protocol
``outbound``     the HTTP clients, and the guard that checks every address
``couriers``     child processes that make outbound requests, on other cores
``simplefeed``   logs of entries as chains of Atom documents, and the follower of such feeds
``storage``      tables, the store with its one writer, migrations
``atomic_files`` writes files of which nobody ever sees half
``database``     turns functions that run in a transaction into methods
``tables``       what all tables of the database have in common
``apps``         programs around the broker, each from the public interfaces only
``monitoring``   the health of the parts, and measurements
``web``          pages for people
``remembering``  remembers for a moment what was read for pages
``accounts``     accounts: names, passwords, sessions, API tokens
``client``       clients that ping a broker, subscribe and listen
``plugins``      the drop-in path for makers of front doors, notifiers and sinks
``testing``      fakes and contract tests, for authors of plugins too
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rsscloud-broker")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0"
