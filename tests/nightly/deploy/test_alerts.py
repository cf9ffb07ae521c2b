"""The shipped alerts: the worker exports every metric and label that they use."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from temporalio.runtime import Runtime, TelemetryConfig

from activities.interruption.metrics import InterruptionMetrics
from tenure import metrics
from tenure.controller.temporal.client import metrics_at
from tenure.model.interruption.records import ParsedEvent, QueueMessage
from tenure.sandbox.ports import Ports
from tests.support.paths import ROOT
from tools.metrics import promtool

HERE = Path(__file__).parent
FILES = sorted((ROOT / "deploy" / "alerts").glob("*.yaml"))
METRIC = re.compile(r"\b(?:tenure|karpenter|temporal)_[a-z0-9_]+")
BY = re.compile(r"\bby \(([^)]*)\)")
Samples = Mapping[str, list[Mapping[str, str]]]


def alert_rules() -> Iterator[dict[str, Any]]:
    for file in FILES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


@pytest.fixture(scope="module")
def exported_samples() -> Samples:
    """Labels of every sample by name, as the worker's port exports them when something is overdue."""
    port = Ports().reserve()
    runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics_at(port)))
    meter = runtime.metric_meter
    for metric in (one for one in vars(metrics).values() if isinstance(one, metrics.Metric)):
        metric.record(meter, 1, **dict.fromkeys(metric.labels, "any"))
    InterruptionMetrics(meter, queue="demo").record_received(message())
    text = read_metrics(port)
    del runtime
    found: dict[str, list[Mapping[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def message() -> QueueMessage:
    now = datetime.now(UTC)
    return QueueMessage(id="1", receipt="1", sent=now, first_received=now, parsed=ParsedEvent(at=now))


def read_metrics(port: int) -> str:
    """The port opens shortly after the runtime is created, so retry."""
    for _ in range(100):
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            text: str = response.read().decode()
            return text
        time.sleep(0.05)
    raise AssertionError("the metrics port does not respond")


@pytest.mark.parametrize("rule", list(alert_rules()), ids=lambda rule: rule["alert"])
def test_alert_links_to_a_runbook_that_names_it(rule: dict[str, Any]) -> None:
    assert rule["alert"] in (ROOT / rule["annotations"]["runbook_url"]).read_text()


@pytest.mark.parametrize("rule", list(alert_rules()), ids=lambda rule: rule["alert"])
def test_alert_uses_existing_metrics_and_labels(rule: dict[str, Any], exported_samples: Samples) -> None:
    names = set(METRIC.findall(rule["expr"]))
    assert names and names <= exported_samples.keys()
    grouped_labels = {label.strip() for labels in BY.findall(rule["expr"]) for label in labels.split(",")}
    written = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    has_labels = any(labels for name in names for labels in exported_samples[name])
    without_labels = re.match(r"(absent|max)\(", rule["expr"])
    assert (grouped_labels or not has_labels or without_labels) and written <= grouped_labels
    for name in names:
        assert all(grouped_labels <= labels.keys() for labels in exported_samples[name])


def test_no_alert_fires_for_slow_nodes() -> None:
    assert not [
        rule for rule in alert_rules() if "slow" in rule["expr"] or metrics.STARTUP_DURATION.name in rule["expr"]
    ]


def test_startup_histogram_has_the_defined_buckets(exported_samples: Samples) -> None:
    ends = {labels["le"] for labels in exported_samples[f"{metrics.STARTUP_DURATION.name}_bucket"]}
    assert {float(one) for one in ends} == {*metrics.STARTUP_DURATION.buckets, float("inf")}


@pytest.mark.parametrize(
    "arguments",
    [*(("check", "rules", str(file)) for file in FILES), ("test", "rules", str(HERE / "alerts_fire.yaml"))],
    ids=lambda arguments: arguments[0],
)
def test_prometheus_accepts_and_fires_the_alerts(arguments: tuple[str, ...]) -> None:
    assert_promtool(*arguments)


def test_every_alert_has_firing_and_silent_cases() -> None:
    alert_tests = yaml.safe_load((HERE / "alerts_fire.yaml").read_text())["tests"]
    fires, silent = set[str](), set[str]()
    for one in alert_tests:
        for case in one.get("alert_rule_test", ()):
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
        for case in one.get("promql_expr_test", ()):
            (name,) = re.findall(r'alertname="(\w+)"', case["expr"])
            (fires if case["exp_samples"] else silent).add(name)
    assert fires == silent == {rule["alert"] for rule in alert_rules()}


def assert_promtool(*arguments: str) -> None:
    """Run promtool, if it exists or can be built."""
    tool = promtool.find_promtool()
    if tool is None:
        pytest.skip("promtool is not installed: make tools")
    result = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
