"""The verbs of the broker, change detection and leases.  Knows no HTTP and no SQL."""

from rsscloud_broker.core.broker import Broker
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.leases import Sweeper
from rsscloud_broker.core.rate_limits import Admission

__all__ = ["Admission", "Broker", "ChangeDetector", "Sweeper"]
