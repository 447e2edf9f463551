"""The page on monitoring, the alerts and the dashboard name metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped] # it has no types
from docutils.core import publish_doctree  # type: ignore[import-untyped] # it has no types
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.counters import Counters
from rsscloud_broker.runtime.measuring import add_process_metrics
from tests.e2e.programs import output, program
from tests.processes import TIMEOUT, new_directory

DOCS = Path(rsscloud_broker.__file__).parent.parent / "docs"
EXAMPLES = DOCS / "examples" / "monitoring"

#: The suffixes of the samples that a metric of each type has.
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
}

#: Metrics and labels that Prometheus adds.
OF_PROMETHEUS = {"up", "instance", "job", "le"}


def all_metrics() -> Iterator[Any]:
    """Every metric of a broker."""
    counters = Counters()
    add_process_metrics(counters, "1", "sqlite")
    yield from counters.registry.collect()


def series() -> set[str]:
    """The names of all series of a broker."""
    return {metric.name + end for metric in all_metrics() for end in SUFFIXES[metric.type]}


def labels() -> set[str]:
    """The labels of the broker's own metrics."""
    own = (value for value in vars(Counters()).values() if hasattr(value, "_labelnames"))
    return {label for metric in own for label in metric._labelnames}


def dashboard() -> Any:
    return json.loads((EXAMPLES / "grafana-dashboard.json").read_text("utf-8"))


def dashboard_expressions() -> list[str]:
    """The expressions of the dashboard, with values for its variables."""
    found = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    values = {"$__rate_interval": "5m", "$instance": ".*", "$job": ".*"}
    for name, value in values.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def alert_expressions() -> list[str]:
    text = (EXAMPLES / "alerts.yml").read_text("utf-8")
    return re.findall(r"(?s)\n +expr: (?:>-\n)?(.*?)\n +for:", text)


class NamesTests(SynchronousTestCase):
    def test_names_in_expressions_are_metrics_and_labels(self) -> None:
        expressions = [*dashboard_expressions(), *alert_expressions()]
        self.assertGreater(len(alert_expressions()), 8)
        self.assertGreater(len(dashboard_expressions()), 20)
        known, used = series() | OF_PROMETHEUS, set()
        for expression in expressions:
            bare = re.sub(r'"[^"]*"', "", expression)
            self.assertNotIn("$", bare)
            names = set(re.findall(r"\b(?:rsscloud|process|python|up)\w*", bare))
            self.assertTrue(names, expression)
            self.assertLessEqual(names, known, expression)
            used |= names
            grouped = re.findall(r"\bby \(([^)]*)\)", bare)
            matched = re.findall(r"(\w+)\s*=~?", bare)
            for label in {*matched, *re.findall(r"\w+", " ".join(grouped))} - OF_PROMETHEUS:
                self.assertIn(label, labels(), expression)
        self.assertGreater(len(used), 25)

    def test_all_names_keep_to_the_rules(self) -> None:
        """https://prometheus.io/docs/practices/naming/; promtool checks more."""
        for metric in all_metrics():
            self.assertRegex(metric.name, r"^(rsscloud|process|python)_[a-z0-9_]+$")
            self.assertTrue(metric.documentation, metric.name)
            if metric.type != "counter":
                self.assertFalse(metric.name.endswith("_total"), metric.name)
            self.assertNotRegex(metric.name, "milli|micro|_ms|minutes|kilo|mega|_kb|_mb")

    def test_the_table_of_the_manual_is_whole(self) -> None:
        page = (DOCS / "operating" / "monitoring.rst").read_text("utf-8")
        lenient = {"report_level": 5, "halt_level": 5}
        tables = publish_doctree(page, settings_overrides=lenient).findall(nodes.table)
        *_, table = tables
        rows = [
            [entry.astext() for entry in row.findall(nodes.entry)]
            for row in next(iter(table.findall(nodes.tbody))).findall(nodes.row)
        ]
        documented = {name: kind for name, kind, *_ in rows}
        own = {
            metric.name + (SUFFIXES[metric.type][0] if metric.type != "histogram" else ""): (
                metric.type
            )
            for metric in all_metrics()
            if metric.name.startswith("rsscloud_")
        }
        self.assertEqual(documented, own)
        described = {label for row in rows for label in re.findall(r"(\w+)(?::|;|$)", row[2])}
        self.assertLessEqual(labels(), described)

    def test_the_manual_names_the_parts_that_are_examined(self) -> None:
        page = (DOCS / "operating" / "monitoring.rst").read_text("utf-8")
        code = (DOCS.parent / "rsscloud_broker" / "composition" / "server.py").read_text("utf-8")
        parts = re.findall(r'"(\w+)": .*\bhealth\.', code)
        self.assertGreater(len(parts), 6)
        self.assertEqual(re.findall(r"(?m)^``(\w+)`` ", page), parts)


class PromtoolTests(SynchronousTestCase):
    def check(self, *arguments: str) -> str:
        return output([program("promtool"), *arguments])

    def write(self, name: str, document: object) -> Path:
        """Write a YAML file; JSON is YAML."""
        path = new_directory(self) / name
        path.write_text(json.dumps(document), "utf-8")
        return path

    def test_alerts_and_configuration(self) -> None:
        said = self.check("check", "rules", str(EXAMPLES / "alerts.yml"))
        self.assertIn(f"SUCCESS: {len(alert_expressions())} rules found", said)
        said = self.check("check", "config", str(EXAMPLES / "prometheus.yml"))
        self.assertIn("is valid prometheus config file", said)

    def test_expressions_of_the_dashboard(self) -> None:
        rules = [
            {"record": f"panel:{number}", "expr": expression}
            for number, expression in enumerate(dashboard_expressions())
        ]
        path = self.write("panels.yml", {"groups": [{"name": "panels", "rules": rules}]})
        self.assertIn(f"SUCCESS: {len(rules)} rules found", self.check("check", "rules", str(path)))

    def test_each_alert_fires_when_it_should_and_only_then(self) -> None:
        bad = {
            "BrokerDown": ['up{job="rsscloud-broker"} 0x60'],
            "BrokerCannotStore": ['rsscloud_http_responses_total{status="503"} 0+60x60'],
            "BrokerWriterStuck": ["rsscloud_store_transaction_age_seconds 60x60"],
            "BrokerDiskNearlyFull": ["rsscloud_disk_free_bytes 1000000x60"],
            "BrokerEventLoopLate": [
                'rsscloud_event_loop_delay_seconds_bucket{le="0.5"} 0x60',
                'rsscloud_event_loop_delay_seconds_bucket{le="1.0"} 0+60x60',
                'rsscloud_event_loop_delay_seconds_bucket{le="+Inf"} 0+60x60',
            ],
            "BrokerSlowToNotify": [
                'rsscloud_first_notification_latency_seconds_bucket{le="30.0"} 0x60',
                'rsscloud_first_notification_latency_seconds_bucket{le="60.0"} 0+60x60',
                'rsscloud_first_notification_latency_seconds_bucket{le="+Inf"} 0+60x60',
            ],
            "BrokerNotificationsFail": [
                'rsscloud_notifications_total{protocol="soap",outcome="failed"} 0+60x60',
                'rsscloud_notifications_total{protocol="soap",outcome="delivered"} 0+10x60',
            ],
            "BrokerSinkBehind": ['rsscloud_events_queued{sink="archive"} 9500x60'],
            "BrokerFewDescriptors": [
                'process_open_fds{job="rsscloud-broker"} 950x60',
                'process_max_fds{job="rsscloud-broker"} 1000x60',
            ],
        }
        good = [
            'up{job="rsscloud-broker"} 1x60',
            'rsscloud_http_responses_total{status="503"} 5x60',
            "rsscloud_store_transaction_age_seconds 0x60",
            "rsscloud_disk_free_bytes 100000000000x60",
            'rsscloud_event_loop_delay_seconds_bucket{le="0.5"} 0+60x60',
            'rsscloud_event_loop_delay_seconds_bucket{le="+Inf"} 0+60x60',
            'rsscloud_first_notification_latency_seconds_bucket{le="30.0"} 0+60x60',
            'rsscloud_first_notification_latency_seconds_bucket{le="+Inf"} 0+60x60',
            'rsscloud_notifications_total{protocol="soap",outcome="failed"} 0+10x60',
            'rsscloud_notifications_total{protocol="soap",outcome="delivered"} 0+60x60',
            'rsscloud_events_queued{sink="archive"} 100x60',
            'rsscloud_missed_events_total{sink="archive"} 7x60',
            'process_open_fds{job="rsscloud-broker"} 100x60',
            'process_max_fds{job="rsscloud-broker"} 1000x60',
        ]
        for alert, inputs in {**bad, "": good}.items():
            firing = self.firing(inputs, list(bad))
            self.assertEqual(firing, {alert} if alert else set())

    def firing(self, inputs: list[str], alerts: list[str]) -> set[str]:
        """The alerts that fire after 50 minutes of some series, of which each has one value a
        minute.
        """
        expressions = [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "50m",
                "exp_samples": [{"labels": "{}", "value": 0}],
            }
            for alert in alerts
        ]
        test = {
            "interval": "1m",
            "input_series": [
                dict(zip(("series", "values"), each.rsplit(" ", 1), strict=True)) for each in inputs
            ],
            "promql_expr_test": expressions,
        }
        document = {"rule_files": [str(EXAMPLES / "alerts.yml")], "tests": [test]}
        done = subprocess.run(
            [program("promtool"), "test", "rules", str(self.write("test.yml", document))],
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )
        said = done.stdout + done.stderr
        self.assertIn("Unit Testing:", said)
        # Every expression whose value is not 0 is a difference from what is expected.
        found = set(re.findall(r'expr: "count\(ALERTS\{alertname=\\"(\w+)\\"', said))
        self.assertEqual(bool(found), bool(done.returncode), said)
        return found


class DashboardTests(SynchronousTestCase):
    def test_panels_do_not_overlap(self) -> None:
        panels = dashboard()["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells

    def test_variables_are_defined(self) -> None:
        document = dashboard()
        defined = {each["name"] for each in document["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(document["panels"])))
        self.assertLessEqual(used, defined)
        self.assertLessEqual({"datasource", "instance", "job"}, used)
