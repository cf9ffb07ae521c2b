"""Metrics are served on IPv4 and IPv6 addresses of the pod."""

import socket
import urllib.error
import urllib.request

import pytest
from temporalio.runtime import Runtime, TelemetryConfig

from tenure.controller.temporal import client
from tenure.controller.temporal.client import metrics_at
from tenure.controller.temporal.connection import Security
from tenure.model.errors import BadInput
from tenure.sandbox.ports import Ports


def test_metrics_are_served_on_ipv6_and_ipv4() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    port = Ports().reserve()
    runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics_at(port)))
    runtime.metric_meter.create_counter("tenure_tests_total").add(1)
    for host in ("[::1]", "127.0.0.1"):
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as response:
            assert b"tenure_tests_total" in response.read(), host


@pytest.mark.parametrize("path", ["/", "/debug/pprof/", "/debug/pprof/profile", "/healthz"])
def test_port_serves_only_metrics(path: str) -> None:
    """Karpenter serves profiles on this port with ENABLE_PROFILING; Tenure does not."""
    port = Ports().reserve()
    runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics_at(port)))
    assert runtime
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10)


async def test_port_0_opens_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(port: int) -> None:
        raise AssertionError(f"port {port} is opened")

    monkeypatch.setattr(client, "metrics_at", fail)
    with pytest.raises(BadInput, match="TEMPORAL_ADDRESS"):
        await client.connect("127.0.0.1:1", namespace="default", security=Security(), metrics_port=0)


def test_metrics_are_served_on_ipv4_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject_family(family: int) -> socket.socket:
        raise OSError(f"address family {family} not supported")

    monkeypatch.setattr(socket, "socket", reject_family)
    assert metrics_at(9000).bind_address == "0.0.0.0:9000"
