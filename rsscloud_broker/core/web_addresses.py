"""Checks the URLs that front doors hand to the broker, before anything is stored.

The built-in front doors check URLs themselves and report faults in the words of their
protocols.  A front door of a plugin may check nothing.
"""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.errors import CallbackFailed, InvalidPing, TopicUnreadable
from rsscloud_broker.model import Intent, Ping
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.web_address import fault_of

#: How many characters of an invalid URL an error shows.
_SHOWN = 100


def topic_of(url: str) -> str:
    """The normal form of a topic's URL.

    :raises TopicUnreadable: the URL or its normal form is no web address.  The normal form
        may be too long, since it encodes characters.
    """
    check_topic(url)
    url = normal_form(url)
    check_topic(url)
    return url


def about_topic(intent: Intent) -> Intent:
    """The same intent with its topic in normal form, and as written in ``written``.

    The topic of an intent to unsubscribe is not checked, since the subscription may be older
    than the rule.

    :raises TopicUnreadable: the topic is no web address.
    :raises CallbackFailed: the callback is no web address.
    """
    topic = normal_form(intent.topic) if intent.unsubscribe else topic_of(intent.topic)
    if fault := fault_of(intent.callback.url):
        raise CallbackFailed(fault, refused=True)
    return intent if topic == intent.topic else evolve(intent, topic=topic, written=intent.topic)


def check_ping(ping: Ping) -> None:
    """Raise if a URL of a ping is no web address.

    :raises InvalidPing: the error names the URL and its fault.
    """
    for url in (ping.url, *filter(None, (ping.changes_url, ping.rss_url))):
        if fault := fault_of(url):
            raise InvalidPing(f"{url[:_SHOWN]}: {fault}")


def check_topic(url: str) -> None:
    """Raise if the URL of a topic is no web address.

    :raises TopicUnreadable: the error names the URL and its fault.
    """
    if fault := fault_of(url):
        raise TopicUnreadable(url[:_SHOWN], fault, refused=True)
