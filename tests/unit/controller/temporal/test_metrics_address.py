"""Prometheus reads the metrics by the pod's address, whichever family the cluster has."""

import socket
import urllib.request

import pytest
from temporalio.runtime import Runtime, TelemetryConfig

from tenure.controller.temporal.client import metrics_at
from tenure.sandbox.ports import Ports


def test_metrics_are_read_by_ipv6_and_by_ipv4() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    port = Ports().reserve()
    runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics_at(port)))
    runtime.metric_meter.create_counter("tenure_tests_total").add(1)
    for host in ("[::1]", "127.0.0.1"):
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as response:
            assert b"tenure_tests_total" in response.read(), host


def test_without_ipv6_they_are_read_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(family: int) -> socket.socket:
        raise OSError(f"address family {family} not supported")

    monkeypatch.setattr(socket, "socket", none)
    assert metrics_at(9000).bind_address == "0.0.0.0:9000"
