"""The page ``/admin/topic``: one topic, and what an administrator does with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import TopicDetails
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.elements import MAX_REASON, MAX_URL, blocked, path
from rsscloud_broker.web.admin.operations import end, move, read, revive, take_down
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.admin.shapes import Reading, Shape
from rsscloud_broker.web.words import counted, facts, moment, strangers_text
from rsscloud_broker.wire.text import sentence


class TopicPage(AdminPage):
    """The page ``/admin/topic``; without ``url``, only the form to look one up."""

    path = place = "/admin/topic"
    template = "admin/topic.html"
    done: Mapping[str, str] = {
        "changed": "The topic has been fetched. It had changed: its subscribers are notified.",
        "unchanged": "The topic has been fetched. It had not changed.",
        "failed": "The topic could not be fetched; see the last fetch below.",
    }

    def path_after(self, operation: Operation, asked: Any, answer: Shape) -> str:
        """Lead back to the topic, at its new URL if it was moved, and say what a fetch brought.

        :raises Unadministrable: a fetch failed, and the broker does not know the topic, so that it
            has no page.
        """
        done = operation.name
        if isinstance(answer, Reading):
            if answer.problem and answer.status is None:
                raise Unadministrable(f"the topic could not be fetched: {answer.problem}")
            done = "failed" if answer.problem else "changed" if answer.changed else "unchanged"
        return path(self.path, url=getattr(asked, "to", asked.url), done=done)

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """A topic or a published file, and the forms for what can be done with it."""
        url = parameter(request, "url").strip()
        found, error, status = None, "", 400
        is_published = bool(url) and self.verbs.is_published(url)
        if url:
            try:
                found = await self.verbs.topic(url)
            except Unadministrable as problem:
                if not (problem.missing and is_published):  # a file is no topic
                    error, status = sentence(str(problem)), 404 if problem.missing else 400
        offered: list[Operation] = []
        if found is not None:
            url = found.status.topic.url
            offered = [read, revive] if found.status.topic.ended else [read, move, end]
        if is_published and parameter(request, "done") != take_down.name:
            offered.append(take_down)
        file: list[tuple[str, Flattenable]] = []
        if is_published:
            file.append(("Address", tags.a(strangers_text(url, MAX_URL), href=url)))
        known = _facts(found, self.now()) if found else file
        if found and "topic_page" in self.console.running:
            public = tags.a("What strangers see of it", href=path("/topic", url=url))
            known.append(("For everybody", public))
        slots: dict[str, Flattenable] = {
            "url": url,
            "facts": facts(known),
            "forms": [
                self.form(request, caller, each.form.button, each, url=url)
                for each in offered
                if each.form
            ],
        }
        return PageContent("Topic" if found else "Topics", slots, error, status)


def _facts(found: TopicDetails, now: float) -> list[tuple[str, Flattenable]]:
    """What is known of a topic: names, and contents, of which empty ones are not shown."""
    status, topic = found.status, found.status.topic
    title = status.feed.get("title")
    return [
        ("Address", strangers_text(topic.url, MAX_URL)),
        ("Title", strangers_text(title) if isinstance(title, str) and title else ""),
        (
            "Earlier addresses",
            [tags.div(strangers_text(url, MAX_URL)) for url in status.moved_from],
        ),
        ("Ended", strangers_text(topic.ended, MAX_REASON) if topic.ended else ""),
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
    ]


def _dated(at: float | None, now: float, text: str = "") -> Flattenable:
    """A time, with a text about it; empty if there is no time."""
    if at is None:
        return ""
    return [moment(at, now), ": " if text else "", strangers_text(text, MAX_REASON) if text else ""]
