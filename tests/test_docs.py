"""What the documentation says is so: the tour works, and links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import ServerProxy

from attrs import fields
from docutils import nodes  # type: ignore[import-untyped] # it has no types
from docutils.core import (  # type: ignore[import-untyped] # it has no types
    publish_doctree,
    publish_string,
)
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker import config
from rsscloud_broker.interfaces import IAppMaker
from rsscloud_broker.outbound.guard import DENIED
from rsscloud_broker.plugins import bundled
from tests.e2e.fixture import request, until
from tests.e2e.programs import program
from tests.processes import BIN, LISTENS, Process, accepts, free_port, new_directory, no_proxies

TOP = Path(rsscloud_broker.__file__).parent.parent
README = TOP / "README.rst"

#: As a package index would render it: no file may be included, no HTML passed.
STRICT = {
    "report_level": 1,
    "halt_level": 2,
    "raw_enabled": False,
    "file_insertion_enabled": False,
}


def tour() -> list[str]:
    """The shell blocks of the tour by hand: from the first of its page to the cleaning up."""
    page = TOP / "docs" / "getting-started.rst"
    blocks = [text for classes, text in literal_blocks(page) if "sh" in classes]
    last = next(number for number, block in enumerate(blocks) if block.startswith("kill "))
    return blocks[: last + 1]


def run_recipe() -> list[str]:
    """The command that ``make run`` ends with."""
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"(?m)\$\(BIN\)/(rsscloud-broker serve .*) \$\(ARGS\);", makefile)
    assert found is not None, "the Makefile has no recipe for run"
    command, *arguments = found[1].split()
    return [str(BIN / command), *arguments]


def settled(port: int) -> None:
    """Return once somebody listens."""
    until(partial(accepts, port), f"somebody to listen at port {port}")


class BrokerTestCase(SynchronousTestCase):
    """With a broker as ``make run`` starts it, but at a free port and in a directory of its own.

    :cvar configuration: what its configuration file says, in TOML.
    """

    configuration = ""

    def setUp(self) -> None:
        program("curl")  # which the examples call
        self.directory = new_directory(self)
        self.broker_port, self.web_port, self.callback_port = (free_port() for _ in range(3))
        self.env = no_proxies()
        self.env["PATH"] += f":{BIN}"
        (self.directory / "broker.toml").write_text(self.configuration, encoding="utf-8")
        self.broker = self.start_broker()

    def start_broker(self) -> Process:
        broker = Process(
            self,
            [
                *run_recipe(),
                f"--config={self.directory / 'broker.toml'}",
                f"--data={self.directory / 'data'}",
                f"--listen=tcp:{self.broker_port}:interface=127.0.0.1",
            ],
            cwd=self.directory,
        )
        broker.wait_for(LISTENS)
        return broker

    def wait_for_ping(self, name: str) -> None:
        """Have the change lists made: now, and not at the full minute."""
        self.broker.stop()
        self.broker = self.start_broker()  # it makes them when it starts
        for file in ("changes.xml", "shortChanges.xml"):  # one is made after the other
            until(partial(self.has, file, name), f"{name} in {file}")

    def has(self, file: str, name: str) -> bool:
        """Whether a change list has a name."""
        return name in request(f"http://127.0.0.1:{self.broker_port}/{file}").text

    def here(self, block: str) -> str:
        """A block of a document, for the ports, files and commands of this test."""
        meant = {
            ".venv/bin/": f"{BIN}/",
            "rsscloud-broker ping": (
                f"rsscloud-broker ping --broker http://localhost:{self.broker_port}"
            ),
            "/tmp/tour": f"{self.directory}/tour",
            "5337": f"{self.broker_port}",
            "8000": f"{self.web_port}",
            "8080": f"{self.callback_port}",
        }
        block = re.sub("|".join(map(re.escape, meant)), lambda found: meant[found[0]], block)
        # Conditions are waited for instead.
        return re.sub(r"(?m)^sleep .*$", "", block)


class TourTests(BrokerTestCase):
    """The tour by hand, pasted block by block into a shell."""

    def setUp(self) -> None:
        super().setUp()
        self.shell = Process(self, ["bash"], self.env, cwd=self.directory)
        # In whatever way a test ends, what it started in the shell does too.
        self.addCleanup(self.shell.send, "kill $(jobs -p) 2> /dev/null\nexit\n")

    def test_the_tour(self) -> None:
        make_feed, listen, ping, ping_again, read, clean_up = map(self.here, tour())
        feed = re.escape(f"http://localhost:{self.web_port}/feed.xml")
        told = rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ {feed}$"

        self.paste(make_feed)
        settled(self.web_port)
        self.paste(listen)
        self.shell.wait_for(r"Thanks for the registration\. It worked\.")
        for block in (ping, ping_again):
            self.shell.send(block + "\n")
            # The broker's answer and the listener's line come in any order.
            lines = {self.shell.wait_for(rf"{told}|^Thanks for the ping\.")[0][:6] for _ in "ab"}
            self.assertEqual(len(lines), 2, self.shell.output)
        self.wait_for_ping("My blog")
        shown = self.paste(read)
        own = f"http://localhost:{self.broker_port}/test/rss.xml"
        listed = [line for line in shown.splitlines() if "<weblog " in line and own not in line]
        self.assertRegex(
            "\n".join(listed), rf'\A<weblog name="My blog" .*\n<weblog name="{feed}" .*\Z'
        )
        self.assertIn(own, shown)
        self.paste(clean_up)
        self.assertFalse((self.directory / "tour").exists())

    def paste(self, block: str) -> str:
        """Run a block; what is shown until it has run."""
        before = len(self.shell.output)
        self.shell.send(f"{block}\necho; echo done\n")
        self.shell.wait_for("^done$")
        return self.shell.output[before:]


class ExampleTests(BrokerTestCase):
    """The examples of the manual print what its pages say."""

    # It pings by itself, and its pings would be in the lists.
    configuration = "[apps.test_feed]\nenabled = false\n"

    def setUp(self) -> None:
        super().setUp()
        web = self.directory / "tour"
        web.mkdir()
        _, _, rest = tour()[0].partition("<<'END'\n")
        (web / "feed.xml").write_text(self.here(rest.partition("END\n")[0]))
        arguments = ["http.server", f"{self.web_port}", "--bind=127.0.0.1", "--directory=tour"]
        Process(self, [f"{BIN}/python", "-m", *arguments], cwd=self.directory)
        settled(self.web_port)

    def run_page(self, name: str) -> tuple[int, Process | None]:
        """Run a page's examples; how many outputs agreed, and what runs in the background."""
        shown, agreed = "", 0
        background: Process | None = None
        command: Process | None = None
        for classes, block in examples(TOP / "docs" / name):
            text = self.here(block)
            shell = {"sh": ["bash", "-ec"], "python": [f"{BIN}/python", "-c"]}.get(classes[1], [])
            if "background" in classes and "sh" in classes:
                command = Process(self, [*shell, f"exec {text}"], self.env, cwd=self.directory)
            elif "background" in classes:
                command = None
                background = Process(self, [*shell, text])
                settled(self.callback_port)
            elif "output" in classes and command is not None:
                command.wait_for(".*".join(map(re.escape, text.split("..."))))
                agreed += 1
                command = None
            elif "output" in classes:
                # Three dots stand for anything.
                expected = ".*".join(map(re.escape, normal(text).split("...")))
                self.assertRegex(normal(shown), expected)
                agreed += 1
            else:
                if "hub.mode=publish" in text and background is not None:
                    background.wait_for("^subscribe$")  # a reader would have seen it by then
                ran = subprocess.run(
                    [*shell, text],
                    cwd=self.directory,
                    env=self.env,
                    capture_output=True,
                    check=False,
                    text=True,
                )
                self.assertEqual(ran.returncode, 0, ran.stderr)
                shown = ran.stdout
        return agreed, background

    def test_index(self) -> None:
        self.assertEqual(self.run_page("protocols/index.rst")[0], 1)

    def test_rsscloud(self) -> None:
        agreed, callback = self.run_page("protocols/rsscloud.rst")
        self.assertEqual(agreed, 5)
        assert callback is not None
        # A test for each registration by a notification, and then the change.
        for _ in range(4):
            callback.wait_for(f"^/notify url=http%3A%2F%2Flocalhost%3A{self.web_port}%2Ffeed.xml$")
        self.assertEqual(callback.output.count("/other?url="), 1)

    def test_websub(self) -> None:
        agreed, callback = self.run_page("protocols/websub.rst")
        self.assertEqual(agreed, 2)
        assert callback is not None
        callback.wait_for("^sha256=[0-9a-f]{64} b'<.xml .*something new")

    def test_pings(self) -> None:
        self.assertEqual(self.run_page("protocols/pings.rst")[0], 3)

    def test_change_lists(self) -> None:
        feed = f"http://localhost:{self.web_port}/feed.xml"
        self.client.rssCloud.ping(feed)
        self.client.weblogUpdates.extendedPing(
            "My blog", f"http://localhost:{self.web_port}/", "", feed
        )
        self.wait_for_ping("My blog")
        self.assertEqual(self.run_page("protocols/change-lists.rst")[0], 2)

    def test_publish(self) -> None:
        self.assertEqual(self.run_page("publish.rst")[0], 6)

    def test_read(self) -> None:
        agreed, callback = self.run_page("read.rst")
        self.assertEqual(agreed, 4)
        assert callback is not None
        told = {callback.wait_for("^(rssCloud|WebSub): .*")[0] for _ in range(2)}
        feed = f"http://localhost:{self.web_port}/feed.xml"
        size = (self.directory / "tour" / "feed.xml").stat().st_size
        self.assertIn(f"rssCloud: {feed}", told)
        (other,) = told - {f"rssCloud: {feed}"}
        self.assertRegex(other, rf"^WebSub: {size} bytes sha256=[0-9a-f]{{64}}$")

    def test_crawl(self) -> None:
        self.client.weblogUpdates.extendedPing(
            "My blog",
            f"http://localhost:{self.web_port}/",
            "",
            f"http://localhost:{self.web_port}/feed.xml",
        )
        archive = self.directory / "data" / "public" / "2026" / "05" / "01" / "01.xml"
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_text("<weblogUpdates/>")
        self.wait_for_ping("My blog")
        source = self.directory / "data" / "public" / "resourcesync" / "notification.xml"
        until(source.exists, "the list of the archive")
        self.assertEqual(self.run_page("crawl.rst")[0], 3)
        self.assertIn("My blog", (self.directory / "changes.xml").read_text(encoding="utf-8"))
        self.assertTrue((self.directory / "marker").exists())
        copied = list((self.directory / "archives").rglob("01.xml"))
        self.assertEqual([file.read_text() for file in copied], ["<weblogUpdates/>"])

    @property
    def client(self) -> Any:
        return ServerProxy(f"http://127.0.0.1:{self.broker_port}/RPC2")


def examples(path: Path) -> list[tuple[list[str], str]]:
    """What a page has people run, and what that prints: the classes and the text of each."""
    return [
        (classes, text)
        for classes, text in literal_blocks(path)
        if {"sh", "python", "output"}.intersection(classes)
    ]


def literal_blocks(path: Path) -> Iterator[tuple[list[str], str]]:
    """The classes and the text of each literal block on a page."""
    # docutils parses the page and not Sphinx: it does not know Sphinx's roles, and need not.
    lenient = {"report_level": 5, "halt_level": 5}
    document = publish_doctree(path.read_text(encoding="utf-8"), settings_overrides=lenient)
    for block in document.findall(nodes.literal_block):
        yield block["classes"], block.astext()


def normal(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


class ServeTests(BrokerTestCase):
    """The command of README for a server."""

    def start_broker(self) -> Process:
        listen = f"tcp:{self.broker_port}:interface=127.0.0.1"
        settings = f'listen = ["{listen}"]\ndata = "data"\n'
        (self.directory / "broker.toml").write_text(settings, encoding="utf-8")
        ((_, block),) = (each for each in literal_blocks(README) if "sh" in each[0])
        broker = Process(self, ["bash", "-c", f"exec {block}"], self.env, cwd=self.directory)
        broker.wait_for("at https://broker.example/")
        settled(self.broker_port)
        return broker

    def test_serves(self) -> None:
        page = request(f"http://127.0.0.1:{self.broker_port}/").text
        self.assertIn("https://broker.example/", page)


class ReadmeTests(SynchronousTestCase):
    def test_is_valid(self) -> None:
        for name in ("README.rst", "NEWS.rst", "CONTRIBUTING.rst"):
            text = (TOP / name).read_text(encoding="utf-8")
            page = publish_string(text, writer_name="html5", settings_overrides=STRICT)
            self.assertIn(b"</html>", page)

    def test_every_command_is_run(self) -> None:
        """Blocks in a language are run, or compared with what is printed; others are for make."""
        pages = [TOP / "docs" / f"{name}.rst" for name in ("tour", "publish", "read", "crawl")]
        makefile = (TOP / "Makefile").read_text(encoding="utf-8")
        for page in (README, TOP / "docs" / "getting-started.rst", *pages):
            for classes, text in literal_blocks(page):
                if "code" not in classes:
                    for line in text.splitlines():
                        found = re.match(r"make (\w+)( +#.*)?$", line)
                        assert found is not None, f"{page}: nothing runs {line!r}"
                        self.assertRegex(makefile, rf"(?m)^{found[1]}:")

    def test_names_the_two_commands(self) -> None:
        text = README.read_text(encoding="utf-8")
        makefile = (TOP / "Makefile").read_text(encoding="utf-8")
        for target in ("run", "test"):
            self.assertIn(f"make {target} ", text)
            self.assertRegex(makefile, rf"(?m)^{target}:")


def documents() -> Iterator[Path]:
    """Every document of ours."""
    yield from TOP.glob("*.rst")
    yield from (TOP / "docs").rglob("*.rst")


def mentioned(pattern: str) -> list[tuple[Path, str]]:
    """What the documents have that matches a pattern, each with its document."""
    return [
        (document, found)
        for document in documents()
        for found in re.findall(pattern, document.read_text(encoding="utf-8"))
    ]


class LinkTests(SynchronousTestCase):
    def assert_exist(self, named: list[tuple[Path, str]], *roots: Path) -> None:
        """Each path is below one of some directories, or beside the document that names it."""
        for document, name in named:
            self.assertTrue(
                any((root / name).exists() for root in (document.parent, *roots)),
                f"{document.relative_to(TOP)} names {name}, which does not exist",
            )

    def test_links_lead_to_files(self) -> None:
        links = [
            (document, target.partition("#")[0])
            for document, target in mentioned(r"<([^<>\s]+)>`_")
            if not urlsplit(target).scheme
        ]
        self.assertGreater(len(links), 10)
        self.assert_exist(links)

    def test_files_that_are_named_exist(self) -> None:
        """``http/site.py`` and the like are files of the package, the tests or the top."""
        kinds = "py|html|toml|rst|wsdl|tac|service|socket"
        named = mentioned(rf"``([a-z_.-]+(?:/[A-Za-z0-9_.-]+)+\.(?:{kinds}))``")
        self.assertGreater(len(named), 20)
        self.assert_exist(named, TOP, TOP / "rsscloud_broker", TOP / "docs")

    def test_targets_of_make_that_are_named_exist(self) -> None:
        rules = (TOP / "Makefile").read_text(encoding="utf-8")
        targets = set(" ".join(re.findall(r"(?m)^([a-z][a-z -]*):(?!=)", rules)).split())
        named = set(re.findall(r"(?m)^# make ([a-z-]+)", rules))
        named |= {target for _, target in mentioned(r"``make ([a-z-]+)")}
        self.assertGreater(len(named), 10)
        self.assertEqual(named - targets, set())

    def test_walks_have_as_many_files_as_they_say(self) -> None:
        text = (TOP / "CONTRIBUTING.rst").read_text(encoding="utf-8")
        walks = re.findall(r"(?m)^(\w.*): (\d+) files\n~+\n((?:(?!.*\n[~-]+\n).*\n)*)", text)
        self.assertEqual(len(walks), 4)
        for what, number, walk in walks:
            files = re.findall(r"(?m)^\d+\. ``[^`]+``:", walk)
            self.assertEqual(len(files), int(number), what)


class ReferenceTests(SynchronousTestCase):
    def test_configuration_includes_the_example(self) -> None:
        text = (TOP / "docs" / "configuration.rst").read_text(encoding="utf-8")
        found = re.search(r"(?m)^\.\. literalinclude:: (\S+example\.toml)$", text)
        assert found is not None
        included = (TOP / "docs" / found[1]).resolve()
        self.assertEqual(included, TOP / "rsscloud_broker" / "example.toml")

    def test_examples_of_the_configuration_can_be_used(self) -> None:
        checked = 0
        for document in documents():
            for classes, text in literal_blocks(document):
                if "toml" in classes:
                    config.loads(text, str(document))  # or else it raises ConfigError
                    checked += 1
        self.assertGreater(checked, 5)

    def test_pages_of_applications_have_the_same_order(self) -> None:
        order = ["A first run", "Settings", "What others see", "Limits"]
        pages = sorted((TOP / "docs" / "applications").glob("*.rst"))
        for page in pages:
            if page.stem != "index":
                headings = re.findall(r"(?m)^(.+)\n-{3,}$", page.read_text(encoding="utf-8"))
                self.assertEqual([each for each in headings if each in order], order, page.name)
        self.assertGreater(len(pages), 4)

    def test_settings_of_applications_are_listed(self) -> None:
        checked = 0
        for maker in vars(bundled).values():
            if IAppMaker.providedBy(maker):
                name = maker.name.replace("_", "-")
                page = TOP / "docs" / "applications" / f"{name}.rst"
                text = page.read_text(encoding="utf-8")
                rows = re.findall(r"(?m)^``([a-z_]+)`` {2,}(\S+)", text)
                found = {key: value.replace(",", "") for key, value in rows}
                for option in fields(maker.options):
                    checked += 1
                    default = str(option.default).lower()
                    if default:  # a text says what an empty one means
                        self.assertEqual(found.get(option.name), default, option.name)
                    self.assertIn(option.name, found)
        self.assertGreater(checked, 10)

    def test_denied_networks_are_listed(self) -> None:
        page = TOP / "docs" / "operating" / "network.rst"
        text = page.read_text(encoding="utf-8")
        found = re.search(
            r"literalinclude:: (\S+guard\.py)\n +:start-at: (.*)\n +:end-before: (.*)\n", text
        )
        assert found is not None
        guard = (page.parent / found[1]).read_text(encoding="utf-8")
        included = guard.partition(found[2])[2].partition(found[3])[0]
        for network, kind in DENIED:
            self.assertIn(f'("{network}", "{kind}")', included)

    def test_traces_name_what_there_is(self) -> None:
        """`file`, `Class.method` in the architecture are in that file."""
        text = (TOP / "docs" / "architecture.rst").read_text(encoding="utf-8")
        named = re.findall(r"``([a-z_/]+\.py)``,\s+``([A-Za-z_.]+)``", text)
        self.assertGreater(len(named), 15)
        missing = [
            (file, name)
            for file, name in named
            for part in name.split(".")
            if not re.search(
                rf"(?m)^ *(async def|def|class) {part}\b",
                (TOP / "rsscloud_broker" / file).read_text(encoding="utf-8"),
            )
        ]
        self.assertEqual(missing, [])

    def test_the_source_layout_is_whole(self) -> None:
        text = (TOP / "docs" / "architecture.rst").read_text(encoding="utf-8")
        layout = text.partition("Source layout\n")[2].partition("Imports go downwards")[0]
        named = re.findall(r"(?m)^``(\w+)`` ", layout)
        package = TOP / "rsscloud_broker"
        modules = {file.stem for file in package.glob("[!_]*.py")}
        packages = {file.parent.name for file in package.glob("*/*.py")}
        self.assertEqual(sorted(named), sorted(modules | packages))

    def test_the_layers_are_those_that_are_checked(self) -> None:
        text = (TOP / "docs" / "architecture.rst").read_text(encoding="utf-8")
        found = re.search(r"(?m)^    commands\n(?:    .*\n)+", text)
        assert found is not None
        layers = re.sub(r"\s*\|\s*", "|", found[0]).split()
        project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
        (checked,) = (
            contract["layers"]
            for contract in project["tool"]["importlinter"]["contracts"]
            if contract["type"] == "layers"
        )
        self.assertEqual(
            [set(layer.split("|")) for layer in layers],
            [set(layer.split(" | ")) for layer in checked],
        )

    def test_requirements_name_tests(self) -> None:
        """`file`: Class.test in the table of WebSub are in that file."""
        text = (TOP / "docs" / "protocols" / "websub.rst").read_text(encoding="utf-8")
        named = re.findall(r"``(tests/\w+/\w+\.py)``:\s+((?:[\w.]+(?:,\s+)?)+)", text)
        self.assertGreater(len(named), 20)
        for file, names in named:
            code = (TOP / file).read_text(encoding="utf-8")
            for name in re.split(r"[.,\s]+", names.strip(" ,.\n")):
                self.assertRegex(code, rf"(?m)^ *(async def|def|class) {name}\b", file)

    def test_every_dependency_has_its_reason(self) -> None:
        text = (TOP / "docs" / "dependencies.rst").read_text(encoding="utf-8")
        project = (TOP / "pyproject.toml").read_text(encoding="utf-8")
        needed = re.search(r"(?s)\ndependencies = \[(.*?)\]\n\n(.*?)\n\[project.scripts\]", project)
        assert needed is not None
        names = re.findall(r'"([a-z][a-z.-]+)(?:\[\w+\])?>=', needed[0])
        self.assertGreater(len(names), 15)
        for name in names:
            self.assertRegex(text, rf"(?m)^{re.escape(name)}(\[\w+\])?$")
