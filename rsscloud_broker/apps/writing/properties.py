"""Reads and writes messages as the properties of an h-entry, which Micropub exchanges.

Properties have a list of values each.  A value is a text, or an object such as ``{"html": "..."}``
for ``content`` and ``{"value": URL, "alt": "..."}`` for ``photo``.  What becomes of which is in
``docs/applications/posting.rst``.  All others are ignored; but a ``visibility`` other than
``public`` is refused, and so is a ``published`` in the future.

Sources: W3C Micropub; https://microformats.org/wiki/h-entry; ``post-status`` and ``visibility`` as
in https://indieweb.org/Micropub-extensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from attrs import evolve

from rsscloud_broker.apps.writing.markup import MarkupLink
from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, Post
from rsscloud_broker.apps.writing.pictures import media_of, with_html, with_media
from rsscloud_broker.apps.writing.rules import check_date
from rsscloud_broker.wire.times import iso_time

#: The values of each property.
Properties: TypeAlias = Mapping[str, Sequence[Any]]

#: The properties for files, by what they are.
_MEDIA: Final = {"image": "photo", "audio": "audio", "video": "video", "": "enclosure"}

#: The properties that say what a message is about, and how a message begins that has nothing else.
_LINKS: Final = {
    "in-reply-to": "Reply to",
    "bookmark-of": "Bookmarked",
    "repost-of": "Reposted",
    "like-of": "Liked",
}

#: Properties that have one value.
_SINGLE: Final = frozenset({"content", "summary", "name", "post-status", "visibility", *_LINKS})

_FIELD: Final = re.compile(r"([A-Za-z0-9-]+)(?:\[([A-Za-z0-9-]*)\])?(?:\[\])?")


def properties_of_form(fields: Iterable[tuple[str, str]]) -> dict[str, list[Any]]:
    """The properties in the fields of a form, in which ``[]`` marks lists.

    ``content[html]``, ``photo[value]`` and the like make objects.  Fields for the endpoint itself
    are left out, such as ``h``, ``access_token`` and those that begin with ``mp-``.
    """
    found: dict[str, list[Any]] = {}
    for name, value in fields:
        matched = _FIELD.fullmatch(name)
        if matched is None or name in {"h", "q", "action", "url", "access_token"}:
            continue
        key, member = matched[1], matched[2]
        if key.startswith("mp-"):
            continue
        values = found.setdefault(key, [])
        if not member:
            values.append(value)
        elif values and isinstance(values[-1], dict) and member not in values[-1]:
            values[-1][member] = value
        else:
            values.append({member: value})
    return found


def properties_of_json(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The properties in a JSON request that creates a message.

    :raises InvalidPost: the request is not as the specification says (section 3.3.2).
    """
    kinds = document.get("type", ["h-entry"])
    if kinds not in (["h-entry"], "h-entry"):
        raise InvalidPost('type must be ["h-entry"]: messages are the only thing to create here')
    found = document.get("properties")
    if not isinstance(found, dict) or not all(isinstance(each, list) for each in found.values()):
        raise InvalidPost('properties must be an object of arrays, such as {"content": ["Hello"]}')
    return {name: values for name, values in found.items() if not name.startswith("mp-")}


def html_in(properties: Properties) -> str:
    """The HTML that is the content of a message; empty if that is a text."""
    content = _first(properties, "content") or _first(properties, "summary")
    return str(content.get("html", "")) if isinstance(content, dict) else ""


def new_post(properties: dict[str, list[Any]], old: Post | None = None) -> NewPost:
    """The message with some properties.

    :param old: the message until now.  The items of its outline are kept; those that stand for
        pictures, sounds and films are made anew if these change.  Its enclosure is kept if it is
        still among these.
    :raises InvalidPost: a value is of a wrong type or cannot be kept.
    """
    if _text(properties, "visibility") not in {"", "public"}:
        raise InvalidPost("messages are public here: leave visibility out, or send a draft")
    about = next((name for name in _LINKS if properties.get(name)), "")
    new = evolve(
        old.as_new() if old else NewPost(""),
        title=_text(properties, "name"),
        link=_text(properties, about) if about else "",
        categories=tuple(_texts(properties, "category")),
        is_draft=_is_draft(properties),
    )
    media = [
        _media_link(value, name) for name in _MEDIA.values() for value in properties.get(name, ())
    ]
    if old and old.enclosure:
        enclosure = old.enclosure.url
        media.sort(key=lambda link: link.url != enclosure)  # the old enclosure first
    content = _first(properties, "content") or _first(properties, "summary") or ""
    match content:
        case str():
            new = evolve(with_media(new, media, captioned=True), text=content)
        case {"html": str(html)}:
            new = with_html(new, html, [("", link) for link in media], captioned=True)
        case {"value": str(text)}:
            new = evolve(with_media(new, media, captioned=True), text=text)
        case _:
            raise InvalidPost('content must be a text, or an object such as {"html": "<p>Hi</p>"}')
    if about and old is None and not new.text and not new.title:
        new = evolve(new, text=f"{_LINKS[about]} {new.link}")
    return new


def check_published(properties: Properties, now: float) -> None:
    """Check that a message shall not be published later: see ``rules.check_date``.

    Other dates, and what is no date, are ignored.
    """
    try:
        date = datetime.fromisoformat(_first(properties, "published"))
    except (TypeError, ValueError):
        return
    check_date("published", date, now)


def properties_of(post: Post, url: str) -> dict[str, list[Any]]:
    """The properties of a message.

    :param url: the URL of its page.
    """
    found: dict[str, list[Any]] = {
        "content": [post.text],
        "published": [iso_time(post.created_at)],
        "updated": [iso_time(post.changed_at)],
        "url": [url],
        "uid": [post.guid],
        "author": [post.author],
        "post-status": ["draft" if post.is_draft else "published"],
    }
    if post.title:
        found["name"] = [post.title]
    if post.categories:
        found["category"] = list(post.categories)
    if post.link:
        found["in-reply-to"] = [post.link]
    for kind, link in media_of(post):
        value = {"value": link.url, "alt": link.text} if link.text else link.url
        found.setdefault(_MEDIA[kind], []).append(value)
    return found


# --- updates (W3C Micropub, section 3.4) ----------------------------------------------


def apply_update(old: Properties, update: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The properties of a message after an update.

    A message has one link, which a client may call by any of its names, as by that with which it
    made the link.  What is deleted goes before anything is added, so that a reply can become a
    bookmark by one update.

    :param update: the request, with ``replace``, ``add`` and ``delete``.
    :raises InvalidPost: the request asks for nothing, or is not as the specification says.
    """
    if not update.keys() & {"replace", "add", "delete"}:
        raise InvalidPost("an update needs replace, add or delete")
    found = {name: list(values) for name, values in old.items()}
    for name, values in _operation(update, "replace").items():
        for other in _names_of(name):
            found.pop(other, None)
        found[name] = list(values)
    _delete_properties(found, update.get("delete", []))
    for name, values in _operation(update, "add").items():
        if name in _SINGLE and any(map(found.get, _names_of(name))):
            raise InvalidPost(f"{name} has one value; use replace to change it")
        before = found.setdefault(name, [])
        before += [value for value in values if value not in before]
    return found


def _names_of(name: str) -> Iterable[str]:
    """All names of a property: those of the link mean the same."""
    return _LINKS if name in _LINKS else (name,)


def _operation(update: Mapping[str, Any], name: str) -> Mapping[str, list[Any]]:
    """The lists of values by property of one operation; raises ``InvalidPost`` if they are none."""
    operation = update.get(name, {})
    if not isinstance(operation, dict) or not all(
        isinstance(values, list) for values in operation.values()
    ):
        raise InvalidPost(f'{name} must be an object of arrays, such as {{"content": ["Hello"]}}')
    return operation


def _delete_properties(found: dict[str, list[Any]], names: Any) -> None:
    """Remove properties, or some of their values."""
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        for name in names:
            for each in _names_of(name):
                found.pop(each, None)
        return
    if not isinstance(names, dict):
        raise InvalidPost("delete must be an array of names, or an object of arrays of values")
    for name, values in _operation({"delete": names}, "delete").items():
        gone = [_bare_value(value) for value in values]
        for each in _names_of(name):
            found[each] = [value for value in found.get(each, []) if _bare_value(value) not in gone]


def _bare_value(value: Any) -> Any:
    """A value without what only describes it, such as the text that stands for a picture."""
    return value.get("value", value) if isinstance(value, dict) else value


# --- values ---------------------------------------------------------------------------


def _first(properties: Properties, name: str) -> Any:
    """The first value of a property; None if it has none."""
    return next(iter(properties.get(name, ())), None)


def _texts(properties: Properties, name: str) -> list[str]:
    """The values of a property, which must be texts."""
    values = [_bare_value(value) for value in properties.get(name, ())]
    if not all(isinstance(value, str) for value in values):
        raise InvalidPost(f"the values of {name} must be texts")
    return values


def _text(properties: Properties, name: str) -> str:
    """The first value of a property, which must be a text; empty if it has none."""
    return next(iter(_texts(properties, name)), "")


def _media_link(value: Any, name: str) -> MarkupLink:
    """A value of a property for files, as a link with the text that stands for the file."""
    match value:
        case str(url) | {"value": str(url)}:
            alt = value.get("alt", "") if isinstance(value, dict) else ""
            if isinstance(alt, str):
                return MarkupLink(url, alt)
    raise InvalidPost(f'{name} must be a URL, or an object such as {{"value": URL, "alt": TEXT}}')


def _is_draft(properties: Properties) -> bool:
    """Whether ``post-status`` says that it is a draft; published if it says nothing."""
    status = _text(properties, "post-status") or "published"
    if status not in {"published", "draft"}:
        raise InvalidPost("post-status must be published or draft")
    return status == "draft"
