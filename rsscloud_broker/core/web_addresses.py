"""Checks the URLs that front doors hand to the broker, before anything is stored.

The built-in front doors check URLs themselves and say what is wrong in the words of their
protocols.  A front door of a plugin may check nothing.
"""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.errors import CallbackFailed, InvalidPing, TopicUnreadable
from rsscloud_broker.model import Intent, Ping
from rsscloud_broker.urls import normal_form
from rsscloud_broker.wire.web_address import fault_of

#: How much of a URL is shown that nobody can call.
_SHOWN = 100


def topic_of(url: str) -> str:
    """The URL of a topic in normal form, if it is a web address in that form, too.

    :raises TopicUnreadable: it is not: characters that have to be encoded may make it too long.
    """
    check_topic(url)
    url = normal_form(url)
    check_topic(url)
    return url


def about_topic(intent: Intent) -> Intent:
    """An intent about its topic in normal form, which remembers how the topic was written.

    :raises TopicUnreadable, CallbackFailed: as ``check_intent``, of both forms.
    """
    check_intent(intent)
    topic = normal_form(intent.topic)
    if topic == intent.topic:
        return intent
    intent = evolve(intent, topic=topic, written=intent.topic)
    check_intent(intent)
    return intent


def check_ping(ping: Ping) -> None:
    """Accept a ping by returning, if all its URLs are web addresses.

    :raises InvalidPing: one is not.
    """
    for url in (ping.url, *filter(None, (ping.changes_url, ping.rss_url))):
        if fault := fault_of(url):
            raise InvalidPing(f"{url[:_SHOWN]}: {fault}")


def check_topic(url: str) -> None:
    """Accept the URL of a topic by returning, if it is a web address.

    :raises TopicUnreadable: it is not.
    """
    if fault := fault_of(url):
        raise TopicUnreadable(url[:_SHOWN], fault, refused=True)


def check_intent(intent: Intent) -> None:
    """Accept an intent by returning, if its topic and its callback are web addresses.

    The topic of an intent that ends a subscription is not looked at: it may have been stored
    when there was no such rule.

    :raises TopicUnreadable, CallbackFailed: they are not.
    """
    if not intent.unsubscribe:
        check_topic(intent.topic)
    if fault := fault_of(intent.callback.url):
        raise CallbackFailed(fault, refused=True)
