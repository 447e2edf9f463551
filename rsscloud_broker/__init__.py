"""A notification broker for the open web.

A front door takes a request in.  The broker stores a fact and publishes an event on
the event bus.  Sinks react to events, and notifiers call the subscribers::

    front_doors ──> core (IBroker) ──> storage (Store)
                         │ after the fact is stored
                         ▼
                     bus (IEventBus) ──> sinks ──> notifiers ──> outbound

docs/architecture.rst says what is in each package, and which may import which.  Read
``interfaces`` first; ``composition`` puts all parts together.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rsscloud-broker")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0"
