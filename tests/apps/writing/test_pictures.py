"""Messages with several pictures, and messages as the HTML of editors."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing.markup import MarkupLink
from rsscloud_broker.apps.writing.model import Enclosure, NewPost, OutlineItem, Post
from rsscloud_broker.apps.writing.pictures import html_of, media_of, with_html, with_media

ONE, TWO = "https://a.example/1.jpg", "https://a.example/2.png"
SOUND = "https://a.example/3.mp3"
POINT = OutlineItem("A point", link="https://a.example/page")


def stored(new: NewPost, media_type: str = "image/jpeg") -> Post:
    """A message as it is after it was stored."""
    file = Enclosure(new.enclosure_url, media_type, 1, new.enclosure_text)
    enclosure = file if new.enclosure_url else None
    values = (new.text, new.title, new.link, enclosure, new.categories, new.items)
    position = 0 if new.is_draft else 1
    return Post(7, "guid", 1, *values, 0.0, 0.0, position, author="dave")


class MediaTests(SynchronousTestCase):
    def test_the_first_is_the_enclosure_and_others_are_items(self) -> None:
        links = [MarkupLink(ONE, "A"), MarkupLink(TWO, ""), MarkupLink(ONE, "")]
        new = with_media(NewPost("x", items=(POINT,)), links)
        self.assertEqual(new.enclosure_url, ONE)
        self.assertEqual(new.items, (POINT, OutlineItem("Picture", link=TWO)))
        found = [("image", MarkupLink(url, "")) for url in (ONE, TWO)]
        self.assertEqual(media_of(stored(new)), found)

    def test_captions(self) -> None:
        links = [MarkupLink(ONE, "Sunset"), MarkupLink(TWO, "City")]
        new = with_media(NewPost("x"), links, captioned=True)
        items = (OutlineItem("Sunset", link=ONE), OutlineItem("City", link=TWO))
        self.assertEqual(new.items, items)
        self.assertEqual(media_of(stored(new)), [("image", link) for link in links])

    def test_others_replace_them(self) -> None:
        new = with_media(NewPost("x", items=(POINT,)), [MarkupLink(ONE, ""), MarkupLink(TWO, "")])
        self.assertEqual(with_media(new, []), NewPost("x", items=(POINT,)))
        self.assertEqual(with_media(new, [MarkupLink(TWO, "")]).enclosure_url, TWO)

    def test_what_a_picture_shows_stays(self) -> None:
        new = with_html(NewPost(""), f'<p>x<img src="{ONE}" alt="A cat"></p>')
        self.assertEqual((new.enclosure_url, new.enclosure_text), (ONE, "A cat"))
        post = stored(new)
        self.assertIn('alt="A cat"', html_of(post))
        self.assertEqual(with_html(post.as_new(), html_of(post), media_of(post)), new)

    def test_a_file_of_unknown_kind(self) -> None:
        post = stored(NewPost("x", enclosure_url="https://a.example/f"), "application/pdf")
        self.assertEqual(media_of(post), [("", MarkupLink("https://a.example/f", ""))])


class HtmlTests(SynchronousTestCase):
    def test_round_trip(self) -> None:
        """An outline whose items link to pictures stays as its author has made it."""
        new = NewPost('One & <two>\n\n"three"', "Title", "https://a.example/", items=(POINT,))
        outline = (OutlineItem("Map", link=ONE), OutlineItem("Then we went home"))
        for each in (
            with_media(new, [MarkupLink(ONE, ""), MarkupLink(TWO, 'A "b"')]),
            NewPost("Hello", items=outline),
        ):
            post = stored(each)
            self.assertEqual(with_html(post.as_new(), html_of(post), media_of(post)), each)

    def test_an_editor_removes_a_picture(self) -> None:
        post = stored(with_media(NewPost("x"), [MarkupLink(ONE, ""), MarkupLink(TWO, "")]))
        changed = with_html(post.as_new(), f'y <img src="{TWO}">', media_of(post))
        self.assertEqual(changed, NewPost("y", enclosure_url=TWO))

    def test_a_sound_stays(self) -> None:
        post = stored(NewPost("x", enclosure_url=SOUND), "audio/mpeg")
        self.assertNotIn("mp3", html_of(post))
        changed = with_html(post.as_new(), f'y <img src="{ONE}">', media_of(post))
        self.assertEqual(changed.enclosure_url, SOUND)
        self.assertEqual(changed.items, (OutlineItem("Picture", link=ONE),))

    def test_links(self) -> None:
        html = '<a href="https://a.example/1">one</a> <a href="https://a.example/2">two</a>'
        first = with_html(NewPost(""), html)
        self.assertEqual(first.link, "https://a.example/1")
        self.assertEqual(first.items, (OutlineItem("two", link="https://a.example/2"),))
        self.assertEqual(with_html(first, html), first)
        other = with_html(NewPost("", link="https://b.example/"), html)
        self.assertEqual([item.text for item in other.items], ["one", "two"])

    def test_title(self) -> None:
        html = "<title>Given</title>text"
        self.assertEqual(with_html(NewPost(""), html), NewPost("text", "Given"))
        kept = with_html(NewPost("", "Kept", is_draft=True), html)
        self.assertEqual((kept.title, kept.is_draft), ("Kept", True))
