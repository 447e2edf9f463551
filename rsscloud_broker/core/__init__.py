"""What the broker does between front doors and store: pings, subscriptions, fetches, polls.

Nothing here knows HTTP or SQL.
"""

from rsscloud_broker.core.administration import Administration
from rsscloud_broker.core.broker import Broker
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.event_sinks import RequestedContentsSink, TakeoverSink
from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.core.intake import PingIntake
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.core.polling import Poller
from rsscloud_broker.core.publisher import Publisher
from rsscloud_broker.core.sweeper import Sweeper
from rsscloud_broker.core.topic_reader import PushedTopics, TopicReader
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.core.views import EventLog, TopicView
from rsscloud_broker.policy.access import Access
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.policy.limiter import FairLimiter
from rsscloud_broker.policy.rate_limits import Admission
