"""The page ``/admin/topic``: one topic, and what an administrator does with it."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import TopicDetails
from rsscloud_broker.web.admin.elements import MAX_REASON, MAX_URL, blocked, facts, path
from rsscloud_broker.web.admin.page import Action, AdminPage, PageContent
from rsscloud_broker.web.words import counted, moment, strangers
from rsscloud_broker.wire.text import sentence


class TopicPage(AdminPage):
    """The page ``/admin/topic``; without ``url``, only the form to look one up."""

    path = place = "/admin/topic"
    template = "admin/topic.html"
    done: Mapping[str, str] = {
        "changed": "The topic has been fetched. It had changed: its subscribers are notified.",
        "unchanged": "The topic has been fetched. It had not changed.",
        "failed": "The topic could not be fetched; see the last fetch below.",
        "revive": "The topic is revived, and fetched soon if it has subscriptions.",
        "end": "The topic has ended, and its subscribers are told.",
        "move": "The topic has moved, with its subscriptions.",
        "taken-down": "It is taken down: it is deleted, and nobody can read it any more.",
    }

    def actions(self) -> Mapping[str, Action]:
        return {
            "read": Action(self._read),
            "revive": Action(self._revive),
            "end": Action(
                self._end,
                "The topic ends: its subscribers are told the reason and lose their subscriptions.",
                ("url", "reason"),
            ),
            "move": Action(
                self._move,
                "The topic moves from the first address to the second, with its subscriptions.",
                ("url", "to", "reason"),
            ),
            "take-down": Action(
                self._take_down,
                "What an account has published at this address is deleted, in all its versions. If "
                "it is a topic, its subscribers are told the reason.",
                ("url", "reason"),
            ),
        }

    async def _read(self, account: str, request: Request) -> str:
        url = parameter(request, "url")
        found = await self.verbs.read_topic(account, url, parameter(request, "reason"))
        if found.problem and found.status is None:
            raise Unadministrable(f"the topic could not be fetched: {found.problem}")
        done = "failed" if found.problem else "changed" if found.changed else "unchanged"
        return path(self.path, url=url, done=done)

    async def _revive(self, account: str, request: Request) -> str:
        url = parameter(request, "url")
        await self.verbs.revive_topic(account, url, parameter(request, "reason"))
        return path(self.path, url=url, done="revive")

    async def _end(self, account: str, request: Request) -> str:
        url = parameter(request, "url")
        await self.verbs.end_topic(account, url, parameter(request, "reason"))
        return path(self.path, url=url, done="end")

    async def _move(self, account: str, request: Request) -> str:
        url, to = parameter(request, "url"), parameter(request, "to")
        await self.verbs.move_topic(account, url, to, parameter(request, "reason"))
        return path(self.path, url=to, done="move")

    async def _take_down(self, account: str, request: Request) -> str:
        url = parameter(request, "url")
        await self.verbs.take_down(account, url, parameter(request, "reason"))
        return path(self.path, url=url, done="taken-down")

    async def content(self, request: Request, caller: Caller) -> PageContent:
        url = parameter(request, "url").strip()
        found, error, status = None, "", 400
        is_published = bool(url) and self.verbs.is_published(url)
        if url:
            try:
                found = await self.verbs.topic(url)
            except Unadministrable as problem:
                if not (problem.missing and is_published):  # a file is no topic
                    error, status = sentence(str(problem)), 404 if problem.missing else 400
        ended = found is not None and bool(found.status.topic.ended)
        slots: dict[str, Flattenable] = {
            "url": found.status.topic.url if found else url,
            "known": "known" if found else "",
            "unknown": "unknown" if error else "",
            "ended": "ended" if ended else "",
            "going": "going" if found and not ended else "",
            "published": "published" if is_published else "",
            "facts": facts(_facts(found, self.now())) if found else "",
            "to": parameter(request, "to"),
            "reason": parameter(request, "reason"),
        }
        return PageContent("Topic" if found else "Topics", slots, error, status)


def _facts(found: TopicDetails, now: float) -> list[tuple[str, Flattenable]]:
    status, topic = found.status, found.status.topic
    title = status.feed.get("title")
    return [
        ("Address", strangers(topic.url, MAX_URL)),
        ("Title", strangers(title) if isinstance(title, str) and title else ""),
        ("Earlier addresses", [tags.div(strangers(url, MAX_URL)) for url in status.moved_from]),
        ("Ended", strangers(topic.ended, MAX_REASON) if topic.ended else ""),
        (
            "Subscriptions",
            tags.a(
                counted(topic.subscribers, "subscription"),
                href=path("/admin/subscriptions", topic=topic.url),
            ),
        ),
        ("Last fetch", _dated(status.asked_at, now, status.result)),
        ("Failed in a row", counted(status.failures, "fetch") if status.failures else ""),
        ("Last success", _dated(topic.read_at, now)),
        ("Last change", _dated(topic.changed_at, now)),
        ("Last ping", _dated(status.pinged_at, now)),
        ("Next poll", _dated(status.next_poll_at, now, status.poll_reason)),
        ("Blocked", blocked(found.block)),
        ("For everybody", tags.a("What strangers see of it", href=path("/topic", url=topic.url))),
    ]


def _dated(at: float | None, now: float, text: str = "") -> Flattenable:
    """A time, with a text about it; empty if there is no time."""
    if at is None:
        return ""
    return [moment(at, now), ": " if text else "", strangers(text, MAX_REASON) if text else ""]
