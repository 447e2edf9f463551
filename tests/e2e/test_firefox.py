"""Five stories in Debian's Firefox, which other tests play in Chromium at greater length."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from tests.e2e.every_page import ACCOUNT, PASSWORD, busy_broker
from tests.e2e.firefox import CONTROL, ENTER, shared_firefox
from tests.e2e.fixture import Broker, EndToEndTestCase, until


class StoriesTests(EndToEndTestCase):
    """What a stranger, an author, a reader and an administrator do."""

    def setUp(self) -> None:
        super().setUp()
        self.firefox = shared_firefox()
        self.addCleanup(self.firefox.forget)

    def signed_in(self, path: str) -> Broker:
        """A running broker, in which an administrator has signed in for a page."""
        broker = self.running_broker(account=(ACCOUNT, PASSWORD, "--admin"))
        self.firefox.go(broker.url + path)
        self.firefox.submit("main form", name=ACCOUNT, password=PASSWORD)
        self.assertEqual(self.firefox.evaluate("location.pathname"), path)
        return broker

    def test_a_stranger_pings(self) -> None:
        """By the form, and sees the ping at the top of the log that is open."""
        broker = self.shared_broker()
        self.firefox.go(f"{broker.url}/pingSiteForm")
        self.firefox.submit("main form", name="By hand", url="http://firefox.example/1")
        self.firefox.wait_for("Thanks for the ping.", "h1")
        self.firefox.go(f"{broker.url}/log?host=firefox.example")
        self.firefox.wait_for("firefox.example/1")
        again = f"{broker.url}/pingSiteForm?name=Again&url=http://firefox.example/2"
        self.firefox.evaluate("void fetch(a0)", again)
        self.firefox.wait_for("firefox.example/2")

    def test_a_stranger_looks_a_topic_up(self) -> None:
        """By a part of its address, in the header; times are shown as those of the reader."""
        busy = busy_broker()
        feed = busy.feed
        self.firefox.go(self.with_log(busy.broker).url)
        self.firefox.type("header [name=q]", feed.removeprefix("http://")[:17] + ENTER)
        until(lambda: self.firefox.evaluate("location.pathname") == "/search", "the look-up")
        self.firefox.wait_for(feed)
        self.firefox.click(f"main a[href='/topic?url={quote(feed, safe='')}']")
        self.firefox.wait_for("What happened")
        self.assertIn(" UTC), ", self.firefox.evaluate("document.querySelector('time').title"))

    def test_an_author_writes(self) -> None:
        """The count is live, and Ctrl+Enter publishes."""
        broker = self.signed_in("/write")
        self.firefox.type("#text", "From Firefox")
        self.firefox.wait_for("128 characters left", "#left")
        self.firefox.type("#text", CONTROL + ENTER)
        self.firefox.wait_for("Published: From Firefox")
        self.firefox.go(f"{broker.url}/people/{ACCOUNT}")
        self.firefox.wait_for("From Firefox")

    def test_a_reader_follows(self) -> None:
        """New items of a feed appear in the river that is open."""
        origin = self.origin()
        feed = origin.feed(elements="<item><title>Old</title><guid>1</guid></item>")
        broker = self.signed_in("/river/feeds")
        self.firefox.submit("form[aria-labelledby=follow]", url=feed)
        self.firefox.wait_for("You follow")
        self.firefox.go(f"{broker.url}/river")
        self.firefox.wait_for("New items appear as they arrive", "#river-state")
        news = b"<channel><item><title>News</title><guid>2</guid></item>"
        page = urlsplit(feed).path
        origin.pages[page] = origin.pages[page].replace(b"<channel>", news)
        broker.ping(feed)
        self.firefox.wait_for("News", ".river-item h3")

    def test_an_administrator_invites(self) -> None:
        """The link lets somebody else choose a password, and works once."""
        self.signed_in("/admin/accounts")
        self.firefox.submit("form[aria-labelledby=invite]", name="anna")
        code = "document.querySelector('[role=status] code').innerText"
        link = self.firefox.evaluate(code).replace("//localhost", "//127.0.0.1")
        self.firefox.forget()
        self.firefox.go(link)
        self.firefox.wait_for("You are invited")
        self.firefox.click("main form button")
        self.firefox.wait_for("Choose a password")
        form = "form[aria-labelledby=password]"
        self.firefox.submit(form, new="another horse", again="another horse")
        self.firefox.wait_for("password is set")
        self.firefox.forget()
        self.firefox.go(link)
        self.firefox.wait_for("This invitation was used")
