"""The line of a document that sets a key."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config.lines import with_line

DOCUMENT = """\
# level = 1
listen = [
    "tcp:1", # level = 2
]
text = '''
[http]
level = 3
'''
http.level = 4
"quoted" = 5
[log] # level
level = 6
inline = { level = 7 }
[[list.entries]]
a = 8
[[list.entries]]
a = 9
"""


class LineTests(SynchronousTestCase):
    def test_keys(self) -> None:
        for message, line in (
            ("listen: no", 2),
            ("text: no", 5),
            ("[http] level: no", 9),
            ("[http]: no", 9),
            ("quoted: no", 10),
            ("[log] level: no", 12),
            ("[log] missing: no", 11),
            ("[log.inline] level: no", 13),
            ("[list.entries[0]] a: no", 15),
            ("[list] entries[1].a: no", 17),
            ("[list.entries[1]] a: no", 17),
            ("[list.entries[1]] missing: no", 16),
        ):
            self.assertEqual(with_line(message, DOCUMENT), f"{message} (line {line})")

    def test_what_is_not_there(self) -> None:
        for message in ("nowhere: no", "[no.where] at: all", "", "\u00fc no key"):
            self.assertEqual(with_line(message, DOCUMENT), message)
