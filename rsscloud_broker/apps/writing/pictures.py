"""Keeps all pictures of a message, though a message has one enclosure.

Clients may send any number of pictures, sounds and films with a message.  The first is its
enclosure.  The others become items of the outline below the message: each links to the file, and
its text is the one that stands for the picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import evolve

from rsscloud_broker.apps.writing.markup import MarkupLink, medium_of, read_html, to_html
from rsscloud_broker.apps.writing.model import NewPost, OutlineItem, Post

#: The text of an item for a file that came without any, by the kind of file.
_NAMES: Final = {"image": "Picture", "audio": "Sound", "video": "Film", "": "File"}


def media_of(post: Post) -> list[tuple[str, MarkupLink]]:
    """The pictures, sounds and films of a message: the kind and the link of each.

    The kind is ``image``, ``audio`` or ``video``; empty if it is unknown.
    """
    captions = {item.link: item.text for item in post.items if is_medium(item)}
    found: list[tuple[str, MarkupLink]] = []
    if enclosure := post.enclosure:
        kind = medium_of(enclosure.url, enclosure.media_type)
        text = captions.pop(enclosure.url, "") or enclosure.text
        found.append((kind, MarkupLink(enclosure.url, text)))
    kinds = {url: medium_of(url) for url in captions}
    found += [
        (kinds[url], MarkupLink(url, "" if text == _NAMES[kinds[url]] else text))
        for url, text in captions.items()
    ]
    return found


def media_in(new: NewPost) -> list[MarkupLink]:
    """The enclosure of a message that is not stored yet, and the other files that it comes with."""
    enclosure = [MarkupLink(new.enclosure_url, new.enclosure_text)] if new.enclosure_url else []
    return enclosure + [MarkupLink(item.link, item.text) for item in new.items if is_medium(item)]


def is_medium(item: OutlineItem) -> bool:
    """Whether an item of an outline stands for a picture, a sound or a film."""
    return not item.items and medium_of(item.link) != ""


def with_media(new: NewPost, media: Iterable[MarkupLink], *, captioned: bool = False) -> NewPost:
    """A message with exactly these pictures, sounds and films.

    If it has them already, it stays as it is: its author has made the outline.

    :param captioned: whether the enclosure gets an item for its text, too.
    """
    by_url = {link.url: link for link in media}
    if _texts(by_url.values()) == _texts(media_in(new)):
        return new
    links = list(by_url.values())
    first, rest = links[:1], links[1:]
    described = [link for link in first if captioned and link.text] + rest
    items = [item for item in new.items if not is_medium(item)]
    items += [
        OutlineItem(link.text or _NAMES[medium_of(link.url)], link=link.url) for link in described
    ]
    url, text = (first[0].url, first[0].text) if first else ("", "")
    return evolve(new, enclosure_url=url, enclosure_text=text, items=tuple(items))


def _texts(links: Iterable[MarkupLink]) -> dict[str, str]:
    """The texts that stand for some files, by their URLs."""
    return {link.url: link.text or _NAMES[medium_of(link.url)] for link in links}


def html_of(post: Post) -> str:
    """A message as HTML, for the editors of people: its text and its pictures."""
    pictures = [link for kind, link in media_of(post) if kind == "image"]
    tags = [f'<img src="{_quoted(link.url)}" alt="{_quoted(link.text)}" />' for link in pictures]
    text = to_html(post.text)
    return text + "".join(f"<p>{tag}</p>" for tag in tags)


def _quoted(text: str) -> str:
    """A text as the value of an attribute of HTML."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def with_html(
    new: NewPost,
    html: str,
    media: Iterable[tuple[str, MarkupLink]] = (),
    *,
    captioned: bool = False,
) -> NewPost:
    """A message whose text and pictures are those of some HTML.

    The first link in the HTML becomes the link of the message if it has none, and further ones
    become items of its outline.

    :param media: what the message had before.  Sounds, films and unknown files stay, since editors
        do not show them in their HTML.
    :param captioned: see ``with_media``.
    :raises TooMuchMarkup: the HTML is too long.
    """
    content = read_html(html)
    kept = [link for kind, link in media if kind != "image"]
    new = evolve(new, text=content.text, title=new.title or content.title)
    new = with_media(new, [*kept, *content.media], captioned=captioned)
    known = {new.link, *(item.link for item in new.items)}
    links = [link for link in content.links if link.url not in known]
    if links and not new.link:
        new = evolve(new, link=links.pop(0).url)
    items = [OutlineItem(link.text or link.url, link=link.url) for link in links]
    return evolve(new, items=(*new.items, *items))
