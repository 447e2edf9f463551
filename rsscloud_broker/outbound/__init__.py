"""Every connection that the broker makes, and the guard that watches over them."""

from rsscloud_broker.outbound.client import Outbound
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.judging import Judge
from rsscloud_broker.outbound.lean_client import LeanClient
from rsscloud_broker.outbound.own_topics import OwnTopics
from rsscloud_broker.outbound.resolver import Resolver
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.topic_fetcher import TopicFetcher

__all__ = [
    "AddressGuard",
    "Judge",
    "LeanClient",
    "Outbound",
    "OwnTopics",
    "Resolver",
    "TLSContext",
    "TopicFetcher",
]
