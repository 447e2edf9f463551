"""Plain HTTP, as curl speaks it: the forms of rssCloud, and the change lists."""

from __future__ import annotations

import json
import shutil
import subprocess

from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, request, until
from tests.e2e.servers import HttpPostReceiver

#: Larger than any call, which may carry a whole feed, written as text in XML.
TOO_LARGE = bytes(6_600_000)


class RegistrationTests(EndToEndTestCase):
    def test_with_a_domain(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        answer = broker.subscribe(receiver, topic, domain="localhost")
        self.assertIn('success="true"', answer.text)
        self.assertEqual((receiver.heard, receiver.challenged), ([], [topic]))
        origin.change(topic)
        broker.ping(topic)
        self.assert_told(receiver, topic)


CURL = shutil.which("curl")

if CURL is not None:

    class CurlTests(EndToEndTestCase):
        def curl(self, *arguments: object, stdin: bytes = b"") -> str:
            """What curl prints."""
            done = subprocess.run(
                [str(CURL), "--silent", "--show-error", "--noproxy", "*", *map(str, arguments)],
                input=stdin,
                capture_output=True,
                check=False,
                timeout=TIMEOUT,
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            return done.stdout.decode()

        def test_from_registration_to_notification(self) -> None:
            broker = self.shared_broker()
            origin, receiver = self.origin(), self.served(HttpPostReceiver())
            topic = origin.feed()
            form = f"notifyProcedure=&port={receiver.port}&path=/notify&protocol=http-post"
            said = self.curl("-d", f"{form}&url1={topic}", f"{broker.url}/rsscloud/pleaseNotify")
            self.assertIn('success="true"', said)
            receiver.heard.clear()
            origin.change(topic)
            said = self.curl(
                "-H", "Accept: application/json", "-d", f"url={topic}", f"{broker.url}/ping"
            )
            self.assertEqual(json.loads(said), {"success": True, "msg": "Thanks for the ping."})
            self.assert_told(receiver, topic)

        def test_a_file_as_xmlrpc(self) -> None:
            call = b"<methodCall><methodName>rssCloud.hello</methodName></methodCall>"
            url = f"{self.shared_broker().url}/RPC2"
            # Its Content-Type says that it is a form.
            self.assertIn("<boolean>1</boolean>", self.curl("--data-binary", "@-", url, stdin=call))

        def test_large_bodies(self) -> None:
            url = f"{self.shared_broker().url}/RPC2"
            status = ("-o", "/dev/null", "-w", "%{http_code}")
            for how in (["--data-binary", "@-"], ["-T", "-", "-X", "POST"]):
                with self.subTest(how):
                    self.assertEqual(self.curl(*status, *how, url, stdin=TOO_LARGE), "413")

        def test_change_list(self) -> None:
            url = f"{self.shared_broker().url}/changes.xml"
            until(lambda: request(url).status == 200, "the first change list")
            self.assertIn("</weblogUpdates>", self.curl("--compressed", url))
