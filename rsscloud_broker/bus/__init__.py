"""The event bus: a bounded queue for each sink."""

from rsscloud_broker.bus.event_bus import EventBus

__all__ = ["EventBus"]
