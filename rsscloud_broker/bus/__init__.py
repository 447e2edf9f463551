"""The event bus, which carries events from the core to the sinks."""

from rsscloud_broker.bus.event_bus import EventBus

__all__ = ["EventBus"]
