"""The values that the broker works with, and the work that it stores."""

from rsscloud_broker.model.hosts import host_of
from rsscloud_broker.model.values import (
    NO_VALIDATORS,
    Callback,
    Content,
    Denial,
    Exchange,
    FetchResult,
    Intent,
    Lease,
    Need,
    Notification,
    Outcome,
    Ping,
    Subscription,
    SubscriptionOptions,
    Topic,
    TopicOverview,
    TopicStatus,
    TopicSummary,
    Validators,
)
