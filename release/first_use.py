"""Starts a broker and sees that it notifies a subscriber, as its first user would.

::

    python3 first_use.py STATE COMMAND...

In COMMAND, ``{port}`` stands for a free port of loopback.  If COMMAND listens with ``systemd:``, it
gets a socket at that port as systemd would pass it.  The file STATE keeps the ports: if it is there
already, nobody subscribes, so that the subscription must have come from an earlier broker with the
same data.  This needs Python's standard library only.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

#: Seconds until a start, a notification or an end counts as failed.
TIMEOUT = 60.0

#: Runs a command with the socket that systemd would pass: descriptor 3, named in the environment.
ACTIVATOR = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "broker"}
os.execvp(sys.argv[2], sys.argv[2:])
"""

notified = threading.Event()


class Site(BaseHTTPRequestHandler):
    """A feed that differs at every fetch, and the callback of its subscriber."""

    def do_GET(self) -> None:
        challenge = parse_qs(urlsplit(self.path).query).get("challenge")
        feed = f"<rss version='2.0'><channel><title>{time.time_ns()}</title></channel></rss>"
        self._answer(challenge[0] if challenge else feed)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        if self.path == "/callback" and form.get("url"):
            notified.set()
        self._answer("thanks")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def request(url: str, /, **form: object) -> str:
    """What a request answers: a GET, or a POST of a form.  Proxies are not asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, urlencode(form).encode() or None, timeout=TIMEOUT) as answer:
        return str(answer.read().decode())


def wait_for_start(broker: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + TIMEOUT
    while broker.poll() is None and time.monotonic() < end:
        try:
            request(f"{url}/health/ready")
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit(f"The broker does not answer at {url}.")


def subscribe_and_ping(url: str, site: int, *, subscribes: bool) -> None:
    feed = f"http://127.0.0.1:{site}/rss.xml"
    if subscribes:
        asked = {"port": site, "path": "/callback", "protocol": "http-post", "url1": feed}
        said = request(f"{url}/rsscloud/pleaseNotify", notifyProcedure="", **asked)
        if 'success="true"' not in said:
            sys.exit(f"The broker does not subscribe: {said}")
        notified.clear()  # of what was sent as a verification
    said = request(f"{url}/rsscloud/ping", url=feed)
    if 'success="true"' not in said or not notified.wait(TIMEOUT):
        sys.exit(f"A ping notifies no subscriber; the broker answered: {said}")


def main(state: str, *command: str) -> None:
    kept = Path(state)
    ports = json.loads(kept.read_text()) if kept.exists() else [0, 0]
    server = ThreadingHTTPServer(("127.0.0.1", ports[1]), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listening = socket.create_server(("127.0.0.1", ports[0]))
    port, site = listening.getsockname()[1], server.server_address[1]
    line, pass_fds = [word.replace("{port}", str(port)) for word in command], list[int]()
    if any("systemd:" in word for word in command):
        pass_fds = [listening.fileno()]
        line = [sys.executable, "-c", ACTIVATOR, str(pass_fds[0]), *line]
    else:
        listening.close()
    broker = subprocess.Popen(line, pass_fds=pass_fds)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for_start(broker, url)
        subscribe_and_ping(url, site, subscribes=not kept.exists())
        kept.write_text(json.dumps([port, site]))
    finally:
        broker.send_signal(signal.SIGTERM)
        status = broker.wait(TIMEOUT)
    if status not in {0, -signal.SIGTERM, 128 + signal.SIGTERM}:
        sys.exit(f"The broker ended with {status}.")
    print(f"A ping to port {port} notified its subscriber.")


if __name__ == "__main__":
    main(*sys.argv[1:])
