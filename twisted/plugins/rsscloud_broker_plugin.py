"""The plugin by which twistd finds the broker: ``twistd rsscloud-broker``."""

from twisted.application.service import ServiceMaker

broker = ServiceMaker(
    "rsscloud-broker",
    "rsscloud_broker.tap",
    "A notification broker: pings in, rssCloud notifications and change lists out.",
    "rsscloud-broker",
)
