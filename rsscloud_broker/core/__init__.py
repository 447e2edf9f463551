"""What the broker does between front doors and store: pings, subscriptions, fetches, polls.

Nothing here knows HTTP or SQL.
"""

from rsscloud_broker.core.administration import Administration
from rsscloud_broker.core.broker import Broker
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.event_log import EventLog
from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.core.intake import PingIntake
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.core.polling import Poller
from rsscloud_broker.core.publisher import Publisher
from rsscloud_broker.core.pushed_topics import PushedTopics
from rsscloud_broker.core.requested_contents import RequestedContentsSink
from rsscloud_broker.core.sweeper import Sweeper
from rsscloud_broker.core.takeover import TakeoverSink
from rsscloud_broker.core.topic_reader import TopicReader
from rsscloud_broker.core.topic_view import TopicView
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.policy.access import Access
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.policy.limiter import FairLimiter
from rsscloud_broker.policy.rate_limits import Admission

__all__ = [
    "Access",
    "Administration",
    "Admission",
    "Blocks",
    "Broker",
    "ChangeDetector",
    "EventLog",
    "FairLimiter",
    "FeedInspector",
    "IntentQueue",
    "PingIntake",
    "Poller",
    "Publisher",
    "PushedTopics",
    "RequestedContentsSink",
    "Sweeper",
    "TakeoverSink",
    "TopicReader",
    "TopicView",
    "Verifier",
]
