"""What can be stored: feeds, and a few other kinds of files that are safe to serve.

A feed is stored and served byte for byte as it came.  A text that came in a call was decoded with
the call; ``encode_text`` makes the bytes of it that its own XML declaration describes.

The extension of a file's name says what the file must be.  Nothing is ever served as active
content: there are neither scripts nor SVG, and HTML is served as plain text.
"""

from __future__ import annotations

import codecs
import gzip
import re
from hashlib import sha256
from typing import Final

from attrs import field, frozen
from lxml import etree

from rsscloud_broker.errors import DocumentFault, Refused
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.feed import is_json
from rsscloud_broker.wire.feed_tree import UnreadableFeed, read_tree

#: The path of an account's feed, below the name of the account.
FEED: Final = "rss.xml"

#: The longest path, and how many directories deep it may be.
MAX_PATH, MAX_DEPTH = 200, 8

#: A document of at most this many bytes is checked in a millisecond or two.
SMALL: Final = 8 * 1024

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FEED_TYPES: Final = {
    "rss": "application/rss+xml",
    "rdf": "application/rdf+xml",
    "feed": "application/atom+xml",
}
_ROOTS: Final = frozenset(_FEED_TYPES)
_ATOM: Final = frozenset({"http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"})

#: The extensions of files that are feeds or lists of feeds; of plain texts; of images, each with
#: its media type and the bytes that it begins with.
_XML_FILES: Final = frozenset({"xml", "rss", "rdf", "atom", "opml"})
_TEXTS: Final = frozenset({"txt", "text", "md", "html", "htm"})
_IMAGES: Final = {
    "gif": ("image/gif", rb"GIF8[79]a"),
    "ico": ("image/x-icon", rb"\x00\x00\x01\x00"),
    "jpeg": ("image/jpeg", rb"\xff\xd8\xff"),
    "jpg": ("image/jpeg", rb"\xff\xd8\xff"),
    "png": ("image/png", rb"\x89PNG\r\n\x1a\n"),
    "webp": ("image/webp", rb"RIFF....WEBP"),
}
EXTENSIONS: Final = tuple(sorted({*_XML_FILES, *_TEXTS, *_IMAGES}))

_DECLARED: Final = re.compile(
    r"""(\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["'])([A-Za-z][\w.:-]{0,40})""", re.ASCII
)
#: A DOCTYPE with declarations of its own; it comes before the root element.
_BEFORE_ROOT: Final = re.compile(
    rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?(?:\s++|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>)*",
    re.DOTALL | re.IGNORECASE,
)
_DECLARATIONS: Final = re.compile(rb"<!DOCTYPE[^>\[]*\[", re.IGNORECASE)
_ROOT: Final = re.compile(rb"<(?:[\w.-]{1,40}:)?(?:rss|rdf|feed)[\s>/]", re.IGNORECASE)
#: Media types of requests that say nothing about their bodies.
_UNSAID: Final = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})


class NotStored(Refused, DocumentFault):
    """A document is not stored, and nothing was changed.

    :ivar status: the status of HTTP that says why.
    """

    def __init__(self, text: str, status: int = 422) -> None:
        super().__init__(text)
        self.status = status

    @property
    def parts(self) -> list[str | int]:
        """The arguments with which the broker makes an error anew that a parser has raised."""
        return [self.reason, self.status]


@frozen
class HostedDocument:
    """A document that can be stored.

    :ivar media_type: its Content-Type, with the charset.
    :ivar packed: the body compressed by gzip; empty if that is no shorter.
    :ivar is_topic: whether it is a feed or a list of feeds, which others may subscribe to.
    """

    body: bytes = field(repr=False)
    media_type: str
    packed: bytes = field(repr=False)
    is_topic: bool

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes."""
        return sha256(self.body).digest()


def check_path(path: str) -> str:
    """Check the path of a file below the name of its account.

    :returns: the path without a slash at its beginning.
    :raises NotStored: it cannot be one.
    """
    path = path.removeprefix("/")
    segments = path.split("/")
    if len(path) > MAX_PATH or len(segments) > MAX_DEPTH:
        raise NotStored(
            f"The name of a file has at most {MAX_PATH} characters, and {MAX_DEPTH} parts between "
            "slashes.",
            400,
        )
    if not all(map(_SEGMENT.fullmatch, segments)):
        raise NotStored(
            f"{path[:80]!r} cannot be the name of a file here: each part between slashes consists "
            "of letters and digits of ASCII and of . _ -, and begins with a letter, a digit or _.",
            400,
        )
    if _extension(path) not in EXTENSIONS:
        raise NotStored(
            f"Files such as {path[-80:]!r} are not stored here: the name must end in one of "
            f"{', '.join('.' + each for each in EXTENSIONS)}. Send a feed as RSS or Atom.",
            415,
        )
    return path


def is_path(path: str) -> bool:
    """Whether there may be a file with a path."""
    return len(path) <= MAX_PATH and all(map(_SEGMENT.fullmatch, path.split("/")))


def is_xml(path: str) -> bool:
    """Whether a file is to be a feed or a list of feeds, by its name."""
    return _extension(path) in _XML_FILES


def encode_text(text: str) -> bytes:
    """The bytes of an XML document that came as a text.

    The text is encoded as its declaration says, so that it need not be changed.  If that is
    impossible, or would put NULs between the letters, it is encoded as UTF-8 and declared so.
    White space before the declaration is removed, since XML allows none there.
    """
    text = text.lstrip("\ufeff \t\r\n")
    declared = _DECLARED.match(text)
    if declared is None:
        return text.encode("utf-8", "replace")
    codec = xml.codec_of(declared[2])
    if codec is not None and _extends_ascii(codec):
        try:
            return text.encode(codec)
        except UnicodeError:
            pass  # the declaration is wrong
    return f"{declared[1]}utf-8{text[declared.end() :]}".encode("utf-8", "replace")


def bytes_of_form_field(body: bytes) -> bytes:
    """Encode an XML document from the field of a form as it declares.

    Browsers and most libraries send forms as UTF-8, whatever the declaration in the field says;
    others send the bytes of a file, which are encoded as declared already.
    """
    declared = _DECLARED.match(body[:300].decode("latin-1"))
    codec = xml.codec_of(declared[2]) if declared else "utf-8"
    if codec == "utf-8" or (codec is not None and body.isascii() and _extends_ascii(codec)):
        return body
    try:
        return encode_text(body.decode("utf-8"))
    except UnicodeDecodeError:  # the bytes of a file
        return body


def check_document(path: str, body: bytes, content_type: str) -> tuple[str, bytes, bool]:
    """Check a document.

    A large one may take very long, so a parser process calls this (``interfaces.Parsing``).

    :param path: a path that ``check_path`` has returned.
    :param content_type: the Content-Type header that came with it, or empty.
    :returns: the media type, the compressed body, and whether it is a topic: see
        ``HostedDocument``.
    :raises NotStored: it is not what its name says, or not acceptable.
    """
    extension = _extension(path)
    said = content_type.partition(";")[0].strip().lower()
    if is_xml(path):
        if said not in _UNSAID and not said.endswith(("/xml", "+xml", "/x-opml")):
            raise NotStored(
                f"{path!r} is to be RSS, Atom or OPML, and this came as {said[:60]}: send it as "
                "application/rss+xml, application/atom+xml or text/xml.",
                415,
            )
        media_type = _type_of_xml(body, content_type, is_feed=extension != "opml")
        is_topic = True
    elif extension in _IMAGES:
        media_type, beginning = _IMAGES[extension]
        is_topic = False
        if not re.match(beginning, body, re.DOTALL):
            raise NotStored(f"{path!r} is no image of the type {media_type}.", 415)
    else:
        media_type, is_topic = _type_of_text(body), False
    packed = gzip.compress(body, 6, mtime=0) if not media_type.startswith("image/") else b""
    return media_type, packed if len(packed) < len(body) else b"", is_topic


def _extension(path: str) -> str:
    """The extension of a file's name in lower case, without the dot; empty if it has none."""
    return path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""


def _extends_ascii(codec: str) -> bool:
    """Whether an encoding has the bytes of ASCII for the characters of ASCII."""
    return "<?xml".encode(codec) == b"<?xml"


def _type_of_xml(body: bytes, content_type: str, *, is_feed: bool) -> str:
    """The Content-Type of a feed or of a list of feeds.

    :raises NotStored: it is neither, or is not well-formed.
    """
    root = _parse_root(body, content_type)
    charset = _charset_of(body, content_type)
    if xml.local_name(root) == "opml":
        return f"text/x-opml; charset={charset}"
    if not is_feed:
        raise NotStored("This is no OPML: its root element must be opml.")
    return f"{_FEED_TYPES[_kind_of_feed(root)]}; charset={charset}"


def _parse_root(body: bytes, content_type: str) -> etree._Element:
    """The root element of a document; raises ``NotStored`` if it is malformed or not safe."""
    # How many bytes are searched for a DOCTYPE, which is more than may come before a root element.
    beginning = body[: 512 * 1024].replace(b"\0", b"")  # UTF-16 has NULs between ASCII letters
    before = _BEFORE_ROOT.match(beginning)
    end = before.end() if before else 0
    if _DECLARATIONS.match(beginning, end):
        raise NotStored(
            "This is not stored, since its DOCTYPE declares entities or other things, with which "
            "a document can fetch files or grow without end; send it without them."
        )
    # A root element elsewhere, such as in a processing instruction, would hide a DOCTYPE.
    first = _ROOT.search(beginning)
    if first is not None and first.start() != end:
        raise NotStored(
            "This is not stored: before the root element of a feed there may be comments and "
            "processing instructions, and these must not contain another root element."
        )
    try:
        tree = read_tree(body, content_type, _ROOTS | {"opml"})
    except UnreadableFeed as error:
        hint = " Send a JSON Feed as RSS or Atom." if is_json(body) else ""
        raise NotStored(f"This is no feed that can be stored: {error.reason}.{hint}") from None
    if tree.complaint:
        raise NotStored(
            f"This is not well-formed XML: {tree.complaint}. Nothing was stored; feed readers "
            "could not read it."
        )
    return tree.root


def _kind_of_feed(root: etree._Element) -> str:
    """The name of the root element of a feed, in lower case.

    :raises NotStored: it is not that of a feed.
    """
    name = xml.local_name(root).lower()
    if name == "feed" and xml.namespace(root) in _ATOM:
        return name
    has_channel = any(xml.local_name(child).lower() == "channel" for child in root)
    if name in {"rss", "rdf"} and has_channel:
        return name
    lacks = {
        "rss": "its rss element has no channel",
        "rdf": "its RDF element has no channel",
        "feed": "its feed element is not in the namespace of Atom",
    }
    said = lacks.get(name, f"its root element is {name[:60]}")
    raise NotStored(f"This is neither RSS nor Atom: {said}.")


_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0?\0", "utf-16le"),
    (b"\0<\0?", "utf-16be"),
)
_CHARSET: Final = re.compile(
    r"""charset\s*=\s*["']?([A-Za-z][\w.:-]{0,40})""", re.IGNORECASE | re.ASCII
)


def _charset_of(body: bytes, content_type: str) -> str:
    """The encoding by which ``wire.xml`` has read a document."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return charset
    declared = _DECLARED.match(body[:300].decode("latin-1"))
    in_type = _CHARSET.search(content_type)
    for name in (declared and declared[2], in_type and in_type[1]):
        if name and not name.lower().startswith("utf-16"):  # without a mark, that is wrong
            return name.lower()
    return "utf-8"


def _type_of_text(body: bytes) -> str:
    """The Content-Type of a plain text; without a charset if it is not UTF-8."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "text/plain"
    return "text/plain; charset=utf-8"
