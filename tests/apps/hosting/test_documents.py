"""What can be stored, and how."""

from __future__ import annotations

import gzip

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.hosting.documents import (
    EXTENSIONS,
    NotStored,
    bytes_of_form_field,
    check_path,
    encode_text,
)
from tests.apps.hosting.fixture import a_feed, make_document

RSS_0_91 = b"""<?xml version="1.0"?>
<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN"
  "http://my.netscape.com/publish/formats/rss-0.91.dtd">
<rss version="0.91"><channel><title>T</title></channel></rss>"""
RSS_1_0 = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns="http://purl.org/rss/1.0/"><channel rdf:about="x"><title>T</title></channel></rdf:RDF>"""
ATOM = b'<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title></feed>'
OPML = b'<opml version="2.0"><head/><body><outline text="x"/></body></opml>'


class FeedTests(SynchronousTestCase):
    def type_of(self, body: bytes, content_type: str = "", path: str = "rss.xml") -> str:
        return make_document(path, body, content_type).media_type

    def refusal(self, body: bytes, content_type: str = "", path: str = "rss.xml") -> NotStored:
        error: NotStored = self.assertRaises(NotStored, make_document, path, body, content_type)
        return error

    def test_formats(self) -> None:
        for body, media_type in (
            (a_feed(), "application/rss+xml"),
            (b"\n " + a_feed(), "application/rss+xml"),
            (RSS_0_91, "application/rss+xml"),
            (b'<rss version="0.92"><channel/></rss>', "application/rss+xml"),
            (RSS_1_0, "application/rdf+xml"),
            (ATOM, "application/atom+xml"),
            (OPML, "text/x-opml"),
        ):
            document = make_document("rss.xml", body)
            self.assertEqual(document.media_type, f"{media_type}; charset=utf-8")
            self.assertTrue(document.is_topic)

    def test_compressed_if_that_is_shorter(self) -> None:
        large = a_feed(size=1000)
        document = make_document("rss.xml", large)
        self.assertEqual(gzip.decompress(document.packed), large)
        self.assertLess(len(document.packed), 500)
        self.assertEqual(make_document("rss.xml", b"<rss><channel/></rss>").packed, b"")

    def test_charset(self) -> None:
        latin = "<?xml version='1.0' encoding='ISO-8859-1'?><rss><channel>é</channel></rss>"
        bare = "<rss><channel>é</channel></rss>"
        wrong = latin.replace("ISO-8859-1", "utf-16")
        for body, said, charset in (
            (latin.encode("latin-1"), "", "iso-8859-1"),
            (latin.encode("latin-1"), "text/xml; charset=utf-8", "iso-8859-1"),
            (bare.encode("latin-1"), "text/xml; charset=ISO-8859-1", "iso-8859-1"),
            (wrong.encode("latin-1"), "text/xml; charset=ISO-8859-1", "iso-8859-1"),
            (wrong.encode(), "", "utf-8"),
            (bare.encode(), "", "utf-8"),
            (bare.encode("utf-16"), "", "utf-16"),
            (f"<?xml version='1.0'?>{bare}".encode("utf-16-le"), "", "utf-16le"),
            (b"\xef\xbb\xbf" + bare.encode(), "text/xml; charset=latin-1", "utf-8"),
        ):
            media_type = self.type_of(body, said)
            self.assertEqual(media_type, f"application/rss+xml; charset={charset}")

    def test_what_is_no_feed(self) -> None:
        for body, said in (
            (b"", "it is empty"),
            (b"<rss", "neither RSS nor Atom"),
            (b"hello", "neither RSS nor Atom"),
            (b"<html><body/></html>", "its root element is html"),
            (b"<rss><channel></rss>", "not well-formed XML: line 1"),
            (b"<rss><channel>&nbsp;</channel></rss>", "not well-formed XML"),
            (b"<rss><channel>\xff</channel></rss>", "not well-formed XML"),
            (b"<rss version='2.0'/>", "no channel"),
            (RSS_1_0.replace(b"channel", b"x"), "no channel"),
            (b"<feed/>", "not in the namespace of Atom"),
            (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "its root element is svg"),
            (a_feed(size=11 * 1024 * 1024), "larger than"),
        ):
            error = self.refusal(body)
            self.assertIn(said, str(error), body[:60])
            self.assertEqual(error.status, 422)

    def test_entities_and_bombs(self) -> None:
        bomb = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 9))
        for declarations in (
            '<!ENTITY x SYSTEM "file:///etc/passwd">',
            '<!ENTITY % x SYSTEM "http://192.0.2.1/"> %x;',
            f"<!ENTITY a0 'ha'>{bomb}",
            "<!ELEMENT rss ANY>",
        ):
            text = f"<!DOCTYPE rss [{declarations}]><rss><channel>&x;</channel></rss>"
            for encoding in ("utf-8", "utf-16", "utf-16-le"):
                error = self.refusal(text.encode(encoding))
                self.assertIn("DOCTYPE", str(error), (declarations, encoding))

    def test_a_root_element_in_an_instruction_hides_no_declarations(self) -> None:
        entity = '<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        feed = '<rss version="2.0"><channel><title>&x;</title></channel></rss>'
        hidden = '<?p <rss version="2.0"><channel><description><![CDATA[ ?>'
        end = "<?q ]]></description></channel></rss><?r ?>"
        for text in (f"{hidden}{entity}{feed}{end}", f"<!-- <rss> -->{entity}{feed}"):
            self.assertIn("DOCTYPE", str(self.refusal(text.encode())))
        self.assertIn("another root", str(self.refusal(f"{hidden}{feed}{end}".encode())))
        # In a text they are a text.
        self.type_of(b"<rss><channel><![CDATA[<!DOCTYPE x [<!ENTITY y 'z'>]>]]></channel></rss>")

    def test_deep_and_wide(self) -> None:
        deep = b"<outline>" * 100_000 + b"</outline>" * 100_000
        error = self.refusal(b"<rss><channel>" + deep + b"</channel></rss>")
        self.assertIn("depth", str(error))
        wide = b"<rss><channel " + b" ".join(b"a%d='1'" % n for n in range(1000)) + b"/></rss>"
        self.assertIn("attributes", str(self.refusal(wide)))

    def test_media_types(self) -> None:
        for said in ("", "application/octet-stream", "application/x-www-form-urlencoded",
                     "text/xml", "application/xml; charset=utf-8", "application/rss+xml",
                     "text/x-opml", "Application/Atom+XML"):  # fmt: skip
            self.type_of(a_feed(), said)
        for said in ("text/html", "application/json", "image/png", "text/plain"):
            error = self.refusal(a_feed(), said)
            self.assertEqual(error.status, 415)
            self.assertIn("application/rss+xml", str(error))

    def test_json_feeds_are_refused_however_they_are_sent(self) -> None:
        """By their content, and by their name; and it is said what would be taken."""
        feed = b'{"version": "https://jsonfeed.org/version/1.1", "title": "x", "items": []}'
        by_name = self.assertRaises(NotStored, check_path, "feed.json")
        for error in (self.refusal(feed), self.refusal(feed, path="x.opml"), by_name):
            self.assertIn("as RSS or Atom.", str(error))
        self.assertNotIn("JSON", str(self.refusal(b"hello")))

    def test_lists_must_be_opml(self) -> None:
        self.assertIn("no OPML", str(self.refusal(a_feed(), path="list.opml")))
        self.type_of(OPML, path="list.opml")


class TextTests(SynchronousTestCase):
    """Texts that came decoded."""

    def test_encoded_as_they_say(self) -> None:
        for declared, encoding in (
            ("", "utf-8"),
            ("<?xml version='1.0'?>", "utf-8"),
            ("<?xml version='1.0' encoding='utf-8'?>", "utf-8"),
            ("<?xml version='1.0' encoding='ISO-8859-1'?>", "latin-1"),
            ("<?xml version='1.0' encoding='windows-1252'?>", "cp1252"),
            ("<?xml version='1.0' encoding='koi8-r'?>", "koi8-r"),
        ):
            letter = "я" if encoding == "koi8-r" else "é"
            text = f"{declared}<rss><channel>{letter}</channel></rss>"
            body = encode_text(text)
            self.assertEqual(body, text.encode(encoding))
            make_document("rss.xml", body)

    def test_declared_anew_if_that_is_impossible(self) -> None:
        for name in ("us-ascii", "iso-8859-1", "utf-16", "UTF-16LE", "no-such-thing", "idna"):
            text = f'<?xml version="1.0" encoding="{name}"?><rss><channel>я é</channel></rss>'
            body = encode_text(text)
            self.assertEqual(body.decode(), text.replace(f'"{name}"', '"utf-8"'))
            make_document("rss.xml", body)

    def test_what_xml_cannot_have(self) -> None:
        """White space before the declaration, and lone surrogates."""
        text = "\ufeff\n\t<?xml version='1.0'?><rss><channel/></rss>"
        self.assertEqual(encode_text(text), text[3:].encode())
        self.assertEqual(encode_text("<rss>\udc80</rss>"), b"<rss>?</rss>")

    def test_forms(self) -> None:
        latin = "<?xml version='1.0' encoding='ISO-8859-1'?><rss><channel>é</channel></rss>"
        utf_8 = latin.replace("ISO-8859-1", "utf-8")
        self.assertEqual(bytes_of_form_field(latin.encode("latin-1")), latin.encode("latin-1"))
        self.assertEqual(bytes_of_form_field(latin.encode("utf-8")), latin.encode("latin-1"))
        self.assertEqual(bytes_of_form_field(utf_8.encode("utf-8")), utf_8.encode("utf-8"))
        self.assertEqual(bytes_of_form_field(b"<rss>\xff</rss>"), b"<rss>\xff</rss>")

    def test_forms_of_ascii_that_say_utf_16(self) -> None:
        """.NET writes that into each text; parsers that believe it cannot read these bytes."""
        utf_8 = b'<?xml version="1.0" encoding="utf-8"?><rss><channel/></rss>'
        for name in (b"utf-16", b"UTF-16LE", b"no-such-thing"):
            self.assertEqual(bytes_of_form_field(utf_8.replace(b"utf-8", name)), utf_8)
        japanese = utf_8.replace(b"utf-8", b"iso-2022-jp").replace(b"<channel/>", b'\x1b$B$"\x1b(B')
        self.assertEqual(bytes_of_form_field(japanese), japanese)


class OtherFilesTests(SynchronousTestCase):
    def test_images_are_what_they_say(self) -> None:
        for path, body, media_type in (
            ("a.png", b"\x89PNG\r\n\x1a\n123", "image/png"),
            ("a/b.JPG", b"\xff\xd8\xff\xe0", "image/jpeg"),
            ("a.gif", b"GIF89a", "image/gif"),
            ("a.webp", b"RIFF1234WEBPVP8", "image/webp"),
            ("favicon.ico", b"\0\0\1\0\1", "image/x-icon"),
        ):
            document = make_document(path, body)
            self.assertEqual((document.media_type, document.packed), (media_type, b""))
            self.assertFalse(document.is_topic)
            error = self.assertRaises(NotStored, make_document, path, b"<script>alert(1)</script>")
            self.assertEqual(error.status, 415)

    def test_html_is_a_plain_text(self) -> None:
        for path in ("index.html", "a.htm", "a.txt", "a.md"):
            document = make_document(path, b"<script>alert(1)</script>", "text/html")
            self.assertEqual(document.media_type, "text/plain; charset=utf-8")
        self.assertEqual(make_document("a.txt", b"\xff").media_type, "text/plain")


class PathTests(SynchronousTestCase):
    def test_paths(self) -> None:
        for path in ("rss.xml", "2002/09/01.xml", "a-b_c.d/E.RSS", "_x.txt", "/rss.xml"):
            self.assertEqual(check_path(path), path.removeprefix("/"))

    def test_what_cannot_be_one(self) -> None:
        for path in (
            "", "/", "..", "../x.xml", "a/../x.xml", "a//x.xml", "a/./x.xml", "//x.xml",
            "..\\x.xml", ".htaccess", "a/.x.xml", "x y.xml", "x\0.xml", "x\n.xml", "é.xml", "a/",
            "%2e%2e/x.xml", "x.xml?y", "x" * 200 + ".xml", "a/" * 9 + "x.xml",
            "C:\\x.xml", "~/x.xml", "x;y.xml",
        ):  # fmt: skip
            error = self.assertRaises(NotStored, check_path, path)
            self.assertIn(error.status, (400, 415), path)

    def test_types_that_are_not_stored(self) -> None:
        for path in ("x", "x.svg", "x.js", "x.css", "x.exe", "x.php", "x.xhtml", "x.xml.svgz"):
            error = self.assertRaises(NotStored, check_path, path)
            self.assertEqual(error.status, 415)
            self.assertIn(".rss", str(error))
        self.assertNotIn("svg", EXTENSIONS)
