"""The HTTP clients that make all of the broker's connections, and the guard that checks them."""

from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.client import CallbackClient
from rsscloud_broker.outbound.guard import AddressGuard, URLPolicy
from rsscloud_broker.outbound.resolver import Resolver
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.topic_client import TopicClient
from rsscloud_broker.outbound.topic_fetcher import TopicFetcher
