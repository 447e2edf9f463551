"""Tests the configuration: its defaults, its errors, and the example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs import field, frozen
from attrs.validators import ge
from sqlalchemy import make_url
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker import config
from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.config import Config, ConfigError, build, load, loads, override
from rsscloud_broker.front_doors.ping_sink import PingSinkOptions
from rsscloud_broker.plugins import bundled
from rsscloud_broker.runtime.plugin_discovery import KINDS, discover, faults, select
from rsscloud_broker.sinks.archive import ArchiveOptions

EXAMPLE = Path(rsscloud_broker.__file__).with_name("example.toml")

#: The makers that come with the broker, by kind and name.
BUNDLED: dict[str, dict[str, Any]] = {
    kind: {maker.name: maker for maker in vars(bundled).values() if interface.providedBy(maker)}
    for kind, interface in KINDS.items()
}


class ConfigTestCase(SynchronousTestCase):
    def refusal(self, text: str) -> str:
        """The error of a document that must be refused."""
        return str(self.assertRaises(ConfigError, loads, text, "broker.toml"))


class DefaultsTests(ConfigTestCase):
    """The defaults themselves are in ``tests/fixtures/public/configuration.txt``."""

    def test_no_file_or_an_empty_one(self) -> None:
        self.assertEqual((load(None), loads("", "broker.toml")), (Config(), Config()))


class ValuesTests(ConfigTestCase):
    def test_every_core_key(self) -> None:
        loaded = loads(
            """
            data = "/var/lib/broker"
            database = "sqlite:////var/lib/other.sqlite"
            listen = ["tcp:80", "unix:/run/broker.sock"]
            public_url = "https://broker.example/"
            [egress]
            allow_topics = ["10.0.0.0/8", "2001:db8::/32"]
            allow_callbacks = ["127.0.0.1"]
            name_servers = ["192.0.2.53", "127.0.0.1:5353", "::1", "[::1]:5353"]
            [http]
            body_limit = 5
            idle_timeout = 0.5
            max_connections = 9
            max_connections_per_address = 1
            trusted_proxies = ["::1"]
            local_programs = "never"
            [limits]
            pings_per_source = 1
            pings_burst = 2
            pings_per_day = 6
            fetches_per_host = 0.25
            fetches_host_burst = 7
            verifications_per_source = 0.5
            verifications_burst = 3
            verifications_per_host = 0
            verifications_host_burst = 4
            subscriptions_per_host = 0
            exempt = ["192.0.2.0/24"]
            [storage]
            min_free_mb = 5
            content_bytes = 140_000_000
            failed_attempts = 50
            """,
            "broker.toml",
        )
        self.assertEqual(loaded.data, "/var/lib/broker")
        self.assertEqual(loaded.database_url, "sqlite:////var/lib/other.sqlite")
        self.assertEqual(loaded.listen, ("tcp:80", "unix:/run/broker.sock"))
        self.assertEqual(loaded.public_url, "https://broker.example")
        self.assertEqual(
            loaded.egress.topic_networks, (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
        )
        self.assertEqual(loaded.egress.callback_networks, (ip_network("127.0.0.1/32"),))
        self.assertEqual(loaded.egress.name_servers[2:], ("::1", "[::1]:5353"))
        self.assertEqual(loaded.http.proxy_networks, (ip_network("::1/128"),))
        self.assertEqual(attrs.astuple(loaded.http), (5, 0.5, 9, 1, ("::1",), "never"))
        self.assertEqual(attrs.astuple(loaded.storage), (5, 140_000_000, 50))
        self.assertEqual(loaded.limits.exempt_networks, (ip_network("192.0.2.0/24"),))
        self.assertEqual(
            attrs.astuple(loaded.limits),
            (1.0, 2, 6, 0.25, 7, 0.5, 3, 0.0, 4, 0, ("192.0.2.0/24",)),
        )

    def test_plugin_tables_stay_raw(self) -> None:
        loaded = loads(
            "[front_doors.a]\nenabled = false\n[notifiers.b]\n[sinks.c]\nx = [1, 'y']",
            "broker.toml",
        )
        self.assertEqual(loaded.front_doors, {"a": {"enabled": False}})
        self.assertEqual(loaded.notifiers, {"b": {}})
        self.assertEqual(loaded.sinks, {"c": {"x": [1, "y"]}})

    def test_database_lies_in_data(self) -> None:
        url = make_url(Config(data="/a b/c?d#e%20").database_url)
        self.assertEqual(url.get_backend_name(), "sqlite")
        self.assertEqual(url.database, "/a b/c?d#e%20/broker.sqlite")


class RefusalTests(ConfigTestCase):
    """Each document is refused, with the file, the key and the rule."""

    cases = (
        ("listen = 'tcp:1'", "listen: must be a list", 'write listen = ["tcp:1"]'),
        ("listen = 5337", "listen: must be a list, not a whole number", ""),
        ("listen = []", "listen: must not be empty", ""),
        ("listen = ['tcp:1', 5]", "listen[1]: must be a string in quotes", "a whole number"),
        ("listen = ['5337']", "listen: has '5337', which is no Twisted endpoint", '"tcp:5337"'),
        ("listen = ['127.0.0.1:80']", "listen: has '127.0.0.1:80'", '"tcp:5337"'),
        ("listen = ['tcp:99999']", "listen: has 'tcp:99999', whose port", "65535"),
        ("listen = ['ssl:port=-1:privateKey=x']", "listen: has 'ssl:port=-1:", "65535"),
        ("listen = ['tcp6:123456']", "listen: has 'tcp6:123456'", "65535"),
        ("data = ''", "data: must not be empty", ""),
        ("data = 2020-01-01", "data: must be a string in quotes, not a date", ""),
        ("database = 'broker.sqlite'", "database: is no SQLAlchemy URL", "sqlite:///FILE"),
        ("database = 'nosuch://x'", "database: is no SQLAlchemy URL", "nosuch"),
        ("database = 'mssql+pymssql://me:sesame@h/x'", "database: is the URL of", "pymssql"),
        (
            "database = 'postgresql+psycopg2://me:sesame@h/x'",
            "database: names the driver",
            "+psycopg:",
        ),
        ("database = 'postgresql+psycopg://me:sesame@h:x/x'", "database: is no SQL", "HOST/NAME"),
        ("public_url = 'broker.example'", "public_url: is 'broker.example'", "https://"),
        ("public_url = 'ftp://broker.example'", "public_url: is", "http or https"),
        ("public_url = 'http://'", "public_url: is", "http or https"),
        ("public_url = 'http://u:p@x'", "public_url: is", "without user"),
        ("public_url = 'http://x/?q'", "public_url: is", "without user, query"),
        ("public_url = 'http://x:99999'", "public_url: is", "http or https"),
        ("public_url = 'http://x y'", "public_url: is", "http or https"),
        ("[http]\nlocal_programs = 'no'", "[http] local_programs", "auto"),
        ("egress = 5", "egress: must be a table, not a whole number", ""),
        ("[egress]\nallow_topics = '::1'", "[egress] allow_topics: must be a list", '["::1"]'),
        ("[egress]\nallow_topics = ['10.0.0.300/8']", "[egress] allow_topics:", "10.0.0.300/8"),
        ("[egress]\nallow_callbacks = ['10.0.0.1/8']", "[egress] allow_callbacks:", "host bits"),
        ("[log]\nlevel = 'critical'", "[log] level:", "'debug', 'info', 'warn', 'error'"),
        ("[log.levels]\na = 5", "[log] levels:", "has 5 for 'a'; it must be one of 'debug'"),
        ("[log.levels]\na.b = 'info'", "[log] levels:", "write a name that has dots in quotes"),
        ("[egress]\nname_servers = ['ns.example']", "[egress] name_servers:", "127.0.0.1:5353"),
        ("[egress]\nname_servers = ['127.0.0.1:0']", "[egress] name_servers:", "127.0.0.1:0"),
        ("[egress]\nname_servers = ['::1:70000']", "[egress] name_servers:", "[2001:db8::53]:5353"),
        ("[http]\ntrusted_proxies = ['proxy']", "[http] trusted_proxies: has 'proxy'", ""),
        ("[http]\nbody_limit = '5'", "[http] body_limit: must be a whole number", "without quotes"),
        ("[http]\nbody_limit = 5.0", "[http] body_limit: must be a whole number", "a number"),
        ("[http]\nbody_limit = true", "[http] body_limit: must be a whole number", ""),
        ("[http]\nbody_limit = 0", "[http] body_limit: must be >= 1", "0"),
        ("[http]\nidle_timeout = nan", "[http] idle_timeout: must be > 0", "nan"),
        ("[http]\nidle_timeout = inf", "[http] idle_timeout: must be <= 86400", "inf"),
        ("[http]\nmax_connections = -1", "[http] max_connections: must be >= 1", "-1"),
        (
            "[http]\nmax_connections_per_address = 0",
            "[http] max_connections_per_address: must be >= 1",
            "0",
        ),
        ("[http]\nmax_conections = 5", "[http] max_conections: unknown", "'max_connections'"),
        ("[limits]\npings_per_source = -1", "[limits] pings_per_source: must be >= 0", "-1"),
        ("[limits]\npings_per_source = nan", "[limits] pings_per_source: must be >= 0", "nan"),
        ("[limits]\npings_per_source = inf", "[limits] pings_per_source: must be <= 10", "inf"),
        ("[limits]\npings_burst = 0", "[limits] pings_burst: must be >= 1", "0"),
        (
            "[storage]\ncontent_bytes = 134217728",
            "[storage] content_bytes: must be >= 136000000",
            "134217728",
        ),
        ("[limits]\nexempt = ['proxy']", "[limits] exempt: has 'proxy'", ""),
        ("[egres]", "egres: unknown key", "'egress'"),
        ("listen_on = ['tcp:1']", "listen_on: unknown key", "'listen'"),
        ("zzz = 1", "zzz: unknown key; the nearest known is", "listen"),
        ("[sink.archive]", "sink: unknown key", "'sinks'"),
        ("[sinks]\narchive = true", "sinks: holds 'archive'", "[sinks.archive]"),
        ("sinks = []", "sinks: must be a table, not a list", ""),
    )

    def test_refusals(self) -> None:
        for text, start, rule in self.cases:
            message = self.refusal(text)
            self.assertTrue(message.startswith(f"broker.toml: {start}"), f"{text}: {message}")
            self.assertIn(rule, message, text)
            self.assertNotIn("\n", message, text)

    def test_database_password_stays_out(self) -> None:
        for scheme in ("nosuch", "mssql+pymssql"):
            message = self.refusal(f"database = '{scheme}://user:secret@host/name'")
            self.assertNotIn("secret", message)

    def test_deep_documents(self) -> None:
        for text in (
            f"x = {'[' * 5000}",
            f"x = {'[' * 5000}{']' * 5000}",
            f"x = {'{a=' * 5000}",
            f"[sinks.archive]\nkeep_hours = {'[' * 300}{']' * 300}",
            f"sinks.{'.'.join('a' * 5000)} = 1",
            f"listen = {'[' * 300}{']' * 300}",
        ):
            self.assertRaises(ConfigError, loads, text, "broker.toml", partial(faults, discover()))
        self.assertEqual(
            self.refusal(f"x = {'[' * 5000}"),
            "broker.toml: lists or tables stand within each other too deeply to be read; no key "
            "needs more than a few of them: look for brackets that are not closed",
        )

    def test_the_character_nul(self) -> None:
        for text in (
            'data = "\\u0000x"',
            'database = "sqlite:////x\\u0000"',
            'listen = ["ssl:443:privateKey=a\\u0000"]',
            'listen = ["unix:/x\\u0000y:lockfile=0"]',
            'listen = ["unix:\\u0000x"]',  # a lock would need a file
        ):
            said = self.refusal(text)
            key = text.partition(" ")[0]
            self.assertEqual(
                said,
                f"broker.toml: {key}: holds the character NUL, which no name of a file may; "
                "remove it (line 1)",
            )
        abstract = loads('listen = ["unix:\\u0000x:lockfile=0"]', "broker.toml")
        self.assertEqual(abstract.listen, ("unix:\0x:lockfile=0",))

    def test_syntax_error_keeps_its_line(self) -> None:
        message = self.refusal('data = "x"\nlisten = [')
        self.assertTrue(message.startswith("broker.toml: is not TOML: "), message)
        message = self.refusal('data = "x"\nlisten =\n')
        self.assertIn("line 2", message)

    def test_each_broken_rule_is_told(self) -> None:
        message = self.refusal(
            """
            data = ""
            listen = 5
            public_url = "ftp://x"
            dta = 1
            [http]
            body_limit = 0
            idle_timeout = "x"
            [egress]
            allow_topics = ["x"]
            allow_callbacks = ["y"]
            [sinks]
            archive = true
            """
        )
        starts = [line.removeprefix("broker.toml: ").split(":")[0] for line in message.split("\n")]
        self.assertEqual(
            sorted(starts),
            [
                "[egress] allow_callbacks",
                "[egress] allow_topics",
                "[http] body_limit",
                "[http] idle_timeout",
                *("data", "dta", "listen", "public_url", "sinks"),
            ],
        )

    def test_further_faults(self) -> None:
        def check(table: Mapping[str, Any]) -> list[str]:
            return [f"[sinks.{name}]: no" for name in table["sinks"]]

        text = "[sinks.a]\n[sinks.b]\n"
        for more in ("", "data = 1\n"):
            error = self.assertRaises(ConfigError, loads, more + text, "broker.toml", check)
            lines = str(error).splitlines()
            first = 2 if more else 1
            self.assertEqual(
                lines[-2:],
                [
                    f"broker.toml: [sinks.a]: no (line {first})",
                    f"broker.toml: [sinks.b]: no (line {first + 1})",
                ],
            )
            self.assertEqual(len(lines), 3 if more else 2)


class FileTests(SynchronousTestCase):
    def write(self, content: bytes) -> str:
        path = Path(self.mktemp())
        path.write_bytes(content)
        return str(path)

    def test_load(self) -> None:
        path = self.write('data = "\u00e9"'.encode())
        self.assertEqual(load(path), Config(data="\u00e9"))

    def test_faults_name_the_file(self) -> None:
        path = self.write(b"dta = 1")
        error = self.assertRaises(ConfigError, load, path)
        self.assertTrue(str(error).startswith(f"{path}: dta: "))

    def test_cannot_be_read(self) -> None:
        for path, said in (
            (self.mktemp(), "cannot be read: No such file or directory"),
            (".", "cannot be read: Is a directory"),
            (self.write(b'data = "\xe9"'), "is not UTF-8"),
        ):
            error = self.assertRaises(ConfigError, load, path)
            self.assertTrue(str(error).startswith(f"{path}: {said}"), error)


class OverrideTests(SynchronousTestCase):
    def test_values(self) -> None:
        changed = override(Config(), "the command line", data="x", listen=("tcp:1",))
        self.assertEqual(changed, Config(data="x", listen=("tcp:1",)))


@frozen
class Inner:
    depth: int = field(default=1, validator=ge(1))


@frozen
class Options:
    path: str
    unit: Literal["minutes", "seconds"] = "minutes"
    inner: Inner = field(factory=Inner)
    free: dict[str, Any] = field(factory=dict)
    limit: int | None = None
    inners: tuple[Inner, ...] = ()
    share: float = field(default=0.5)

    @share.validator
    def _in_bounds(self, _: object, value: float) -> None:
        if value > 1:
            raise ValueError("a share is at most 1")


class BuildTests(SynchronousTestCase):
    """The options of plugins are checked by the same rules."""

    def build(self, **table: Any) -> Options:
        return build(Options, table, "broker.toml", path=("sinks", "x"), others=("enabled",))

    def refusal(self, **table: Any) -> str:
        return str(self.assertRaises(ConfigError, self.build, **table))

    def test_values(self) -> None:
        made = self.build(path="p", inner={"depth": 3}, free={"a": [1]}, limit=7, share=1)
        self.assertEqual(made, Options("p", "minutes", Inner(3), {"a": [1]}, 7, (), 1.0))
        self.assertIsInstance(made.share, float)

    def test_refusals(self) -> None:
        for table, said in (
            ({"path": None}, "[sinks.x] path: must be a string in quotes"),
            ({}, "[sinks.x] path: missing; it has no default"),
            (
                {"limit": "7"},
                "[sinks.x] limit: must be a whole number, not a string in quotes; write it without "
                "quotes",
            ),
            (
                {"unit": "hours"},
                "[sinks.x] unit: must be one of 'minutes', 'seconds', not 'hours'",
            ),
            ({"inner": {"depth": 0}}, "[sinks.x.inner] depth: must be >= 1"),
            ({"inner": {"dept": 1}}, "[sinks.x.inner] dept: unknown"),
            ({"share": 2}, "[sinks.x]: a share is at most 1"),
            ({"enabld": True}, "[sinks.x] enabld: unknown key; the nearest known is 'enabled'"),
        ):
            given: dict[str, Any] = ({"path": "p"} if table else {}) | dict(table)
            message = self.refusal(**given)
            self.assertTrue(message.startswith(f"broker.toml: {said}"), message)

    def test_list_of_tables(self) -> None:
        made = self.build(path="p", inners=[{"depth": 3}, {}])
        self.assertEqual(made.inners, (Inner(3), Inner(1)))
        text = self.refusal(path="p", inners=[{}, {"depth": 0}, {"dept": 1, "depth": "2"}, 7])
        for line in (
            "[sinks.x.inners[1]] depth: must be >= 1",
            "[sinks.x.inners[2]] dept: unknown key; the nearest known is 'depth'",
            "[sinks.x.inners[2]] depth: must be a whole number, not a string",
            "[sinks.x] inners[3]: must be a table, not a whole number",
        ):
            self.assertIn(line, text)
        self.assertIn(
            "[sinks.x] inners: must be a list, not a table", self.refusal(path="p", inners={})
        )

    def test_validator_that_compares_keys(self) -> None:
        @frozen
        class Span:
            first: int
            last: int = field(validator=ge(0))

            @last.validator
            def _after_first(self, _: object, value: int) -> None:
                if value < self.first:
                    raise ValueError("'last' comes before first")

        refusals: list[tuple[dict[str, Any], str]] = [
            ({"first": 2, "last": 1}, "last: comes before first"),
            ({"first": "2", "last": 1}, "first: must be a whole number"),
            ({"first": "2", "last": -1}, "first: must be a whole number"),
        ]
        for table, text in refusals:
            error = self.assertRaises(ConfigError, build, Span, table, "")
            self.assertIn(text, str(error))
        self.assertIn("last: must be >= 0", str(error))
        self.assertEqual(build(Span, {"first": 1, "last": 1}, ""), Span(1, 1))

    def test_no_keys(self) -> None:
        @frozen
        class Nothing:
            pass

        error = self.assertRaises(ConfigError, build, Nothing, {"a": 1}, "")
        self.assertEqual(str(error), "a: unknown key; none is known here")


class LongestTimesTests(SynchronousTestCase):
    """Times in options that the database could not subtract from the present."""

    def test_are_refused(self) -> None:
        """Each of these was accepted, and failed again and again when the broker used it."""
        topic = "https://blog.example/"
        too_long: list[tuple[Any, dict[str, Any], str]] = [
            (EventsOptions, {"days": inf}, "days"),
            (EventsOptions, {"pings_days": 1e12}, "pings_days"),
            (EventsOptions, {"keep": [{"topic": topic, "days": inf}]}, "days"),
            (RiverOptions, {"days": 10**9}, "days"),
            (ArchiveOptions, {"keep_hours": 10**10}, "keep_hours"),
            (PingSinkOptions, {"repeat_window": 10**15}, "repeat_window"),
        ]
        for options, table, key in too_long:
            with self.assertRaisesRegex(ConfigError, f"{key}.*must be <= "):
                build(options, table, "broker.toml")


class ExampleTests(SynchronousTestCase):
    """The commented example that is installed with the package."""

    def setUp(self) -> None:
        self.text = EXAMPLE.read_text(encoding="utf-8")

    def uncommented(self) -> Config:
        return loads(re.sub(r"(?m)^#(?=[^\s#])", "", self.text), "example.toml")

    def test_as_it_stands(self) -> None:
        self.assertEqual(loads(self.text, "example.toml"), Config())

    def test_defaults(self) -> None:
        loaded = self.uncommented()
        self.assertEqual(loaded.database_url, Config().database_url)
        self.assertEqual(loaded.public_url, "http://localhost:5337")
        # These two have no default of their own: it is derived from other keys.
        plugins: dict[str, Any] = {kind: {} for kind in KINDS}
        core = attrs.evolve(loaded, database=None, public_url=None, **plugins)
        self.assertEqual(core, Config())

    def test_names_every_core_key(self) -> None:
        uncommented = re.sub(r"(?m)^#(?=[^\s#])", "", self.text)
        for cls in (Config, config.Egress, config.Http):
            for key in attrs.fields(cls):
                if key.name not in KINDS:
                    self.assertRegex(uncommented, rf"(?m)^(\[)?{key.name}(\.| =|\])")

    def test_names_the_bundled_plugins_that_have_options(self) -> None:
        """And no others, since these have only ``enabled``; and all applications."""
        loaded = self.uncommented()
        for kind, makers in BUNDLED.items():
            fitting = {
                name
                for name, maker in makers.items()
                if kind == "apps" or attrs.fields(maker.options)
            }
            self.assertEqual(set(getattr(loaded, kind)), fitting)

    def test_options_of_the_bundled_plugins(self) -> None:
        """The example has each option, with its default."""
        loaded = self.uncommented()
        for kind, makers in BUNDLED.items():
            tables = getattr(loaded, kind)
            enabled = {name: table | {"enabled": True} for name, table in tables.items()}
            for maker, options in select(makers, enabled, kind, "example.toml"):
                self.assertEqual(options, maker.options(), maker.name)
                named = set(tables.get(maker.name, ())) - {"enabled"}
                self.assertEqual(named, set(attrs.fields_dict(maker.options)), maker.name)

    def test_the_bundled_plugins_run(self) -> None:
        """The example enables the same plugins as no configuration at all: no applications."""
        for configuration in (self.uncommented(), Config()):
            for kind, makers in BUNDLED.items():
                chosen = select(makers, getattr(configuration, kind), kind)
                run = [] if kind == "apps" else sorted(makers)
                self.assertEqual([maker.name for maker, _ in chosen], run)
