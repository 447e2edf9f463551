"""Tests which events are logged, where to, and in which form."""

from __future__ import annotations

import json
import os
import sys
import syslog
from datetime import UTC, datetime, timedelta
from io import StringIO
from math import nan
from pathlib import Path
from typing import Any

from twisted.logger import ILogObserver, Logger, LogLevel, LogPublisher
from twisted.python.logfile import LogFile
from twisted.python.syslog import SyslogObserver
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.config import Log
from rsscloud_broker.runtime.logs import Logs, is_journal, with_priority

#: The options of twistd that say where its log goes.
TWISTD = {"logger": None, "logfile": None, "syslog": False, "prefix": "twisted", "nodaemon": True}


class LogsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.stream: Any = StringIO()

    def begin(self, settings: Log) -> None:
        self.logs = Logs(settings)
        observer = self.logs.to_stream(self.stream)
        verifyObject(ILogObserver, observer)
        self.publisher = LogPublisher(observer)
        self.log = self.logger("rsscloud_broker.core.broker.Broker")

    def logger(self, namespace: str) -> Logger:
        return Logger(namespace, observer=self.publisher)

    def said(self) -> str:
        """The text that was written since the last call."""
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return str(text)

    def fail_with_traceback(self) -> None:
        try:
            raise ZeroDivisionError("it was 0")
        except ZeroDivisionError:
            self.log.failure("Dividing {what} failed.", what="it")


class LevelTests(LogsTestCase):
    def test_the_level(self) -> None:
        self.begin(Log(level="warn"))
        for level in LogLevel.iterconstants():
            self.log.emit(level, "at {name}", name=level.name)
        said = self.said()
        self.assertEqual(
            [level.name for level in LogLevel.iterconstants() if f" at {level.name}\n" in said],
            ["warn", "error", "critical"],
        )

    def test_the_levels_of_namespaces(self) -> None:
        self.begin(
            Log(levels={"rsscloud_broker.delivery": "debug", "rsscloud_broker.core": "error"})
        )
        self.logger("rsscloud_broker.delivery.walk.Walk").debug("shown")
        self.logger("rsscloud_broker.delivery_of_others").debug("hidden")
        self.logger("rsscloud_broker.storage").info("shown as well")
        self.log.warn("hidden too")
        said = self.said()
        self.assertIn("Walk#debug] shown\n", said)
        self.assertIn(" shown as well\n", said)
        self.assertNotIn("hidden", said)

    def test_they_can_change(self) -> None:
        self.begin(Log(levels={"rsscloud_broker": "error"}))
        self.log.info("hidden")
        self.logs.change(Log(level="debug"))
        self.log.debug("shown")
        self.logs.change(Log())
        self.log.debug("hidden")
        self.assertEqual([line.split("] ")[1] for line in self.said().splitlines()], ["shown"])


class TextTests(LogsTestCase):
    def test_as_twistd_writes_it(self) -> None:
        self.begin(Log())
        self.log.warn("{what} is full.", what="The queue")
        self.assertRegex(
            self.said(),
            r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} "
            r"\[rsscloud_broker\.core\.broker\.Broker#warn\] The queue is full\.\n$",
        )

    def test_a_warning_has_its_id_after_its_level(self) -> None:
        self.begin(Log())
        self.log.warn("Courier {number}: {said}", number=1, said="hello")
        self.assertIn("Broker#warn RB206] Courier 1: hello\n", self.said())


class JournalTests(LogsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = Path(self.mktemp())
        self.stream = self.path.open("w", encoding="utf-8")
        self.addCleanup(self.stream.close)
        status = os.fstat(self.stream.fileno())
        self.name = f"{status.st_dev}:{status.st_ino}"
        self.patch(os, "environ", {"JOURNAL_STREAM": self.name})

    def said(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def test_is_known_by_its_numbers(self) -> None:
        self.assertTrue(is_journal(self.stream))
        for other in (f"1{self.name}", "", None):
            self.patch(os, "environ", {} if other is None else {"JOURNAL_STREAM": other})
            self.assertFalse(is_journal(self.stream))
        self.assertFalse(is_journal(StringIO()))

    def test_each_level_has_its_priority(self) -> None:
        self.begin(Log(level="debug"))
        for level in LogLevel.iterconstants():
            self.log.emit(level, "as {name}", name=level.name)
        name = "rsscloud_broker.core.broker.Broker"
        self.assertEqual(
            self.said().splitlines(),
            [
                f"<7>[{name}#debug] as debug",
                f"<6>[{name}#info] as info",
                f"<4>[{name}#warn] as warn",
                f"<3>[{name}#error] as error",
                f"<2>[{name}#critical] as critical",
            ],
        )

    def test_each_line_of_a_traceback_has_it(self) -> None:
        self.begin(Log())
        self.fail_with_traceback()
        first, *others = self.said().splitlines()
        self.assertTrue(first.endswith("#critical] Dividing it failed."), first)
        self.assertGreater(len(others), 2)
        for line in others:
            self.assertTrue(line.startswith("<2>\t"), line)
        self.assertIn("ZeroDivisionError: it was 0", others[-1])

    def test_nobody_chooses_a_priority_of_his_own(self) -> None:
        self.begin(Log())
        self.log.info("{url} is odd", url="http://a.example/\n<0>The end")
        self.assertIn("\n<6>\t<0>The end is odd\n", self.said())

    def test_json_has_it_too(self) -> None:
        self.begin(Log(format="json"))
        self.log.error("It failed.")
        said = self.said()
        self.assertEqual(said[:3], "<3>")
        self.assertEqual(json.loads(said[3:])["message"], "It failed.")

    def test_empty_lines(self) -> None:
        self.assertEqual(with_priority("a\n\nb\n", 6), "<6>a\n<6>\n<6>b\n")


class JsonTests(LogsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.begin(Log(format="json"))

    def line(self) -> dict[str, Any]:
        (line,) = self.said().splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    def test_one_object(self) -> None:
        self.log.warn(
            "{url} is left out.\nSo are {count} more.",
            url="http://a.example/\u00e9",
            count=3,
            why=None,
            error=ValueError("no plain value"),
            rate=nan,
        )
        line = self.line()
        time = datetime.fromisoformat(line.pop("time"))
        self.assertEqual(time.utcoffset(), timedelta(0))
        self.assertLess(abs(datetime.now(UTC) - time), timedelta(hours=1))
        self.assertEqual(
            line,
            {
                "level": "warn",
                "namespace": "rsscloud_broker.core.broker.Broker",
                "message": "http://a.example/\u00e9 is left out.\nSo are 3 more.",
                "url": "http://a.example/\u00e9",
                "count": 3,
                "why": None,
            },
        )

    def test_a_warning_has_its_id(self) -> None:
        self.log.warn("Courier {number}: {said}", number=1, said="hello")
        self.assertEqual(self.line()["id"], "RB206")

    def test_fields_replace_nothing(self) -> None:
        self.log.info("{time}", time="now", namespace="mine", message="another")
        line = self.line()
        self.assertEqual((line["level"], line["message"]), ("info", "now"))
        self.assertNotIn("mine", line.values())

    def test_a_failure_has_its_traceback(self) -> None:
        self.fail_with_traceback()
        line = self.line()
        self.assertEqual((line["level"], line["what"]), ("critical", "it"))
        self.assertTrue(line["traceback"].startswith("Traceback (most recent call last):\n"))
        self.assertIn("ZeroDivisionError: it was 0", line["traceback"])

    def test_nothing_to_tell(self) -> None:
        self.publisher({"log_level": LogLevel.info, "log_namespace": "a", "log_time": 0.0})
        self.assertEqual(self.said(), "")

    def test_the_format_can_change(self) -> None:
        self.logs.change(Log())
        self.log.info("as text")
        self.assertTrue(self.said().endswith("#info] as text\n"))


class OptionsTests(SynchronousTestCase):
    """The place of the log, by the options of twistd."""

    def setUp(self) -> None:
        self.opened: list[LogFile] = []

    def observer(self, **options: object) -> ILogObserver | None:
        return Logs(Log()).observer({**TWISTD, **options}, self.opened.append)

    def test_to_stdout(self) -> None:
        stdout = StringIO()
        self.patch(sys, "stdout", stdout)
        for file in (None, "-"):
            observer = self.observer(logfile=file)
            assert observer is not None
            Logger("a", observer=observer).info("Hello.")
        self.assertEqual(stdout.getvalue().count("[a#info] Hello.\n"), 2)

    def test_to_a_file(self) -> None:
        path = Path(self.mktemp())
        for nodaemon in (True, False):
            observer = self.observer(logfile=str(path), nodaemon=nodaemon)
            assert observer is not None
            Logger("a", observer=observer).info("Hello.")
        self.assertEqual(path.read_text(encoding="utf-8").count("[a#info] Hello.\n"), 2)
        self.assertEqual([file.path for file in self.opened], [str(path.absolute())] * 2)

    def test_twistd_sees_to_it(self) -> None:
        self.assertIsNone(self.observer(logger=print))
        self.assertIsNone(self.observer(logfile="-", nodaemon=False))
        self.assertIsNone(Logs(Log()).observer({}, self.opened.append))

    def test_to_syslog(self) -> None:
        sent: list[tuple[int, str]] = []
        opened: list[str] = []
        self.patch(
            SyslogObserver,
            "openlog",
            lambda observer, prefix, options, facility: opened.append(prefix),
        )
        self.patch(
            SyslogObserver,
            "syslog",
            lambda observer, priority, line: sent.append((priority, line)),
        )
        observer = self.observer(syslog=True, prefix="broker")
        assert observer is not None
        log = Logger("a", observer=observer)
        log.warn("It is full.")
        log.warn("Courier {number}: {said}", number=1, said="hello")
        log.debug("It is not shown.")
        self.assertEqual(opened, ["broker"])
        self.assertEqual(
            sent,
            [
                (syslog.LOG_WARNING, "[a] It is full."),
                (syslog.LOG_WARNING, "[a RB206] Courier 1: hello"),
            ],
        )
