"""The configuration, as attrs classes, and what builds them from TOML."""

from rsscloud_broker.config.accounts import AccountsConfig
from rsscloud_broker.config.building import ConfigError, NoOptions, build, nearest
from rsscloud_broker.config.config import (
    Check,
    Config,
    Egress,
    Http,
    Metrics,
    Network,
    Pages,
    Polling,
    RateLimitOptions,
    Storage,
    Topics,
    load,
    loads,
    override,
)
from rsscloud_broker.config.lines import with_line
from rsscloud_broker.config.logging import Log
