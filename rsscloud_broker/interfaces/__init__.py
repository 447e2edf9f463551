"""Every interface of the broker.  Read this first.

- ``broker``: the verbs that front doors call, the clock, and the event bus
- ``plugins``: what front doors, notifiers and sinks implement, and what they are given
- ``store``: the database, and the check for free disk space
- ``views``: what pages may read
- ``health``: whether the parts of the broker work
- ``outbound``: HTTP requests to other servers, and which URLs the broker refuses to call

Arguments are permissions: a front door is given the broker and nothing below it, a sink is given
the store and the bus, and a notifier is given only the outbound client.

Every method that returns an ``Awaitable`` may be an ``async def`` or return a ``Deferred``.
"""

from __future__ import annotations

from rsscloud_broker.interfaces.broker import IBroker, IClock, IEventBus, IEventSink
from rsscloud_broker.interfaces.health import IHealth, PartState
from rsscloud_broker.interfaces.outbound import IOutbound, ITopicFetcher, IURLPolicy, OutboundReply
from rsscloud_broker.interfaces.plugins import (
    FrontDoorParts,
    IFrontDoor,
    IFrontDoorMaker,
    INotifier,
    INotifierMaker,
    IPages,
    IPluginMaker,
    IPushesContent,
    ISinkMaker,
    Route,
    SinkParts,
    SoapDescription,
    SoapOperation,
    SoapService,
)
from rsscloud_broker.interfaces.store import IDiskSpace, IStore
from rsscloud_broker.interfaces.views import IEventLog

__all__ = [
    "FrontDoorParts",
    "IBroker",
    "IClock",
    "IDiskSpace",
    "IEventBus",
    "IEventLog",
    "IEventSink",
    "IFrontDoor",
    "IFrontDoorMaker",
    "IHealth",
    "INotifier",
    "INotifierMaker",
    "IOutbound",
    "IPages",
    "IPluginMaker",
    "IPushesContent",
    "ISinkMaker",
    "IStore",
    "ITopicFetcher",
    "IURLPolicy",
    "OutboundReply",
    "PartState",
    "Route",
    "SinkParts",
    "SoapDescription",
    "SoapOperation",
    "SoapService",
]
