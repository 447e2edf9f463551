"""Checks the URLs that front doors hand to the broker, before anything is stored.

The built-in front doors check URLs themselves and report faults in the words of their
protocols.  A front door of a plugin may check nothing.
"""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.errors import CallbackFailed, InvalidPing, Refused, TopicUnreadable
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

    :raises TopicUnreadable, CallbackFailed: see ``check_intent``, which checks both forms.
    """
    check_intent(intent)
    topic = normal_form(intent.topic)
    if topic == intent.topic:
        return intent
    intent = evolve(intent, topic=topic, written=intent.topic)
    check_intent(intent)
    return intent


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


def check_intent(intent: Intent) -> None:
    """Raise if the topic or the callback of an intent is no web address.

    The topic of an intent to unsubscribe is not checked, since the subscription may be older
    than the rule.

    :raises TopicUnreadable: the topic is no web address.
    :raises CallbackFailed: the callback is no web address.
    """
    if not intent.unsubscribe:
        check_topic(intent.topic)
    if fault := fault_of(intent.callback.url):
        raise CallbackFailed(fault, refused=True)


def note_of(url: str, problem: str | Refused) -> str:
    """A sentence for a publisher about a topic that was not accepted, or whose last fetch failed.

    :param problem: why it was not accepted, or why the fetch failed.
    """
    if isinstance(problem, Refused):
        return f"{problem}; it was not accepted"
    return f"{url} could not be read the last time: {problem}"
