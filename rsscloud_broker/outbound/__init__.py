"""Every connection that the broker makes, and the guard that watches over them."""

from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.judging import Judge
from rsscloud_broker.outbound.lean_client import LeanClient
from rsscloud_broker.outbound.own_topics import OwnTopics
from rsscloud_broker.outbound.resolver import Resolver
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.topic_fetcher import TopicFetcher
from rsscloud_broker.outbound.treq_client import TreqClient

__all__ = [
    "AddressGuard",
    "AnswerBudget",
    "Judge",
    "LeanClient",
    "OwnTopics",
    "Resolver",
    "TLSContext",
    "TopicFetcher",
    "TreqClient",
]
