"""What a message may be: checks what came in, and tidies it.

Characters are counted as a person counts them: by grapheme (Unicode Standard Annex 29), so that a
flag, a family of emoji or a letter with its accents is one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import regex
from attrs import evolve

from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, OutlineItem
from rsscloud_broker.wire.links import is_absolute
from rsscloud_broker.wire.text import clean, legal
from rsscloud_broker.wire.web_address import MAX_URL

#: How deep an outline may be, and how many items it may have.  Readers of XML refuse what is nested
#: much deeper.
MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 500

#: How many categories a message may have, and how long each: a page shows them in a line or two.
MAX_CATEGORIES: Final = 20
MAX_CATEGORY: Final = 60

#: How many characters the text for a file may have: it may have to describe a picture.
MAX_FILE_TEXT: Final = 1000

#: How many code points one grapheme may have on the average.  Families of emoji have seven or ten;
#: without a limit, one grapheme could have a million accents.
POINTS_PER_GRAPHEME: Final = 12

_GRAPHEME: Final = regex.compile(r"\X")
_CONTROLS: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_BLANK_LINES: Final = re.compile(r"\n{3,}")


def graphemes(text: str) -> int:
    """How many characters a text has, as a person counts them."""
    if text.isascii():
        return len(text)  # "\r\n" would be one, but `tidy` leaves none
    return sum(1 for _ in _GRAPHEME.finditer(text))


def tidy(text: str) -> str:
    """A text without control characters and without white space at its ends.

    Line breaks stay, but no more than one empty line between two others.
    """
    text = legal(text.replace("\r\n", "\n").replace("\r", "\n")).replace("\t", " ")
    text = re.sub("[\x85\u2028\u2029]", "\n", text)
    return _BLANK_LINES.sub("\n\n", _CONTROLS.sub("", text)).strip()


def check_and_tidy(new: NewPost, most: int) -> NewPost:
    """Check what came in, and return it tidied.

    :param most: how many characters a text may have.
    :raises InvalidPost: it breaks a rule.
    """
    post = evolve(
        new,
        text=_check_length(tidy(new.text), most, "the message"),
        title=_check_length(clean(new.title), most, "the title"),
        link=_check_url(new.link, "the link"),
        enclosure_url=_check_url(new.enclosure_url, "the address of the enclosure"),
        enclosure_text=_check_length(
            clean(new.enclosure_text), MAX_FILE_TEXT, "the text for the file"
        ),
        categories=_tidy_categories(new.categories),
        items=_tidy_outline(new.items, most),
    )
    if not (post.text or post.title or post.link or post.enclosure_url or post.items):
        raise InvalidPost("the message is empty; write something, or add a link or an enclosure")
    return post


def _check_length(text: str, most: int, what: str) -> str:
    """A text; raises ``InvalidPost`` if it is longer than ``most``; ``what`` names it then."""
    if len(text) > most * POINTS_PER_GRAPHEME:
        raise InvalidPost(f"{what} is much too long; it may have {most} characters")
    if (length := graphemes(text)) > most:
        over = "one character" if length == most + 1 else f"{length - most} characters"
        raise InvalidPost(
            f"{what} has {over} too many: it has {length} and may have {most}; make it shorter, or "
            "put the rest into items below it"
        )
    return text


def _check_url(url: str, what: str) -> str:
    """A web address or nothing; raises ``InvalidPost`` for others; ``what`` names it then."""
    url = clean(url)
    if not url:
        return ""
    if len(url) > MAX_URL:
        raise InvalidPost(f"{what} is too long; it may have {MAX_URL} characters")
    if not is_absolute(url):
        raise InvalidPost(
            f"{what} is {url[:80]!r}, but must be a whole web address that begins with http:// or "
            "https://"
        )
    return url


def check_date(name: str, date: datetime, now: float) -> None:
    """Check that a message shall not be published later, which is not offered here.

    :param name: what the date is called.
    :param date: one without a time zone may be in any.
    :param now: seconds since the epoch.
    :raises InvalidPost: the date is in the future.
    """
    # The clocks of people go wrong.
    tolerance = timedelta(minutes=30) if date.tzinfo else timedelta(hours=15)
    # Nothing is subtracted from the date: programs for .NET send the first of all dates,
    # 0001-01-01T00:00:00, for none.
    if date.replace(tzinfo=date.tzinfo or UTC) > datetime.fromtimestamp(int(now), UTC) + tolerance:
        raise InvalidPost(
            f"messages are published at once here, not later: {name} is in the future; save it as "
            "a draft"
        )


def _tidy_categories(given: tuple[str, ...]) -> tuple[str, ...]:
    """The categories, tidied, each once; not too many, and none too long."""
    names = list(dict.fromkeys(filter(None, map(clean, given))))
    if len(names) > MAX_CATEGORIES:
        raise InvalidPost(f"the message has {len(names)} categories; it may have {MAX_CATEGORIES}")
    for name in names:
        if len(name) > MAX_CATEGORY:
            raise InvalidPost(
                f"the category {name[:40]!r}… is too long; it may have {MAX_CATEGORY} characters"
            )
    return tuple(names)


def too_deep() -> InvalidPost:
    """What is wrong with an outline with too many levels."""
    return InvalidPost(
        f"the outline is too deep; below a message there may be {MAX_DEPTH} levels of items"
    )


def too_many_items() -> InvalidPost:
    """What is wrong with an outline with too many items."""
    return InvalidPost(f"the outline has too many items; it may have {MAX_ITEMS}")


def _tidy_outline(items: tuple[OutlineItem, ...], most: int) -> tuple[OutlineItem, ...]:
    """The outline, tidied.  Items without anything in them or below them are left out."""
    _check_size(items)  # first, so that what follows may recurse
    return tuple(found for each in items if (found := _tidy_item(each, most)) is not None)


def _check_size(items: tuple[OutlineItem, ...]) -> None:
    """Check how deep an outline is, and how many items it has, level by level."""
    level, depth, number = list(items), 0, 0
    while level:
        depth += 1
        number += len(level)
        if depth > MAX_DEPTH:
            raise too_deep()
        if number > MAX_ITEMS:
            raise too_many_items()
        level = [below for each in level for below in each.items]


def _tidy_item(item: OutlineItem, most: int) -> OutlineItem | None:
    """An item of an outline, tidied, with all below it; None if nothing is in it or below it."""
    below = tuple(found for each in item.items if (found := _tidy_item(each, most)) is not None)
    text = clean(item.text)
    what = f"the item {text[:30]!r}"
    tidied = OutlineItem(
        _check_length(text, most, what),
        _check_length(clean(item.title), most, f"the title of {what}"),
        _check_url(item.link, f"the link of {what}"),
        below,
    )
    return tidied if text or tidied.title or tidied.link or below else None
