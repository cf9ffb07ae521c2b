"""Worker startup: an error is one line that names its place, and exit code 2."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal import client as temporal_service
from tenure.controller.temporal.connection import Security
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.policy.policy_features import PolicyFeatures
from tenure.settings import Settings
from tenure.worker.adapters import build_ports, read_ahead
from tenure.worker.settings import aws_settings, host_settings
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.paths import ROOT
from tests.unit.controller.planning.provisioner_harness import FakeOfferings
from worker import main

NOWHERE = "127.0.0.1:1"
"""An address without a server."""


@contextmanager
def occupied_port() -> Iterator[int]:
    """A port that is in use."""
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        yield listening.getsockname()[1]


def run_worker(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the worker as a process, without settings in the inherited environment."""
    inherited = {name: value for name, value in os.environ.items() if name.lower() not in Settings.model_fields}
    defaults = {"CLUSTER_NAME": "demo", "HEALTH_PROBE_PORT": "0", "METRICS_PORT": "0"}
    return subprocess.run(
        [sys.executable, "worker.py", *flags],
        cwd=ROOT,
        env={**inherited, **defaults, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *expected: str) -> None:
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("tenure: "), done.stderr
    assert [one for one in expected if one not in lines[0]] == [], lines[0]
    assert done.stdout == ""


@pytest.fixture
async def temporal() -> AsyncIterator[str]:
    """Address of a running Temporal server."""
    async with time_skipping() as environment:
        yield environment.client.service_client.config.target_host


def test_unreachable_temporal_is_named() -> None:
    assert_one_line(
        run_worker(TEMPORAL_ADDRESS=NOWHERE),
        f"TEMPORAL_ADDRESS='{NOWHERE}'",
        "no Temporal service",
        "connection refused",
    )


async def test_invalid_address_of_temporal_is_named() -> None:
    with pytest.raises(BadInput, match="TEMPORAL_ADDRESS='temporal:grpc'"):
        await temporal_service.connect("temporal:grpc", namespace="default", security=Security(), metrics_port=0)


async def test_unreachable_cluster_names_kubeconfig(temporal: str, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig(f"http://{NOWHERE}")))
    assert_one_line(
        run_worker(TEMPORAL_ADDRESS=temporal, KUBECONFIG=str(config)),
        f"KUBECONFIG='{config}'",
        "NodeClaims cannot be listed",
    )


async def test_missing_kubeconfig_is_named(temporal: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    assert_one_line(run_worker(TEMPORAL_ADDRESS=temporal, KUBECONFIG=missing), f"KUBECONFIG='{missing}'")


@pytest.mark.parametrize("setting", ["HEALTH_PROBE_PORT", "METRICS_PORT"])
def test_occupied_port_is_named(setting: str) -> None:
    with occupied_port() as port:
        assert_one_line(run_worker(**{setting: str(port)}), f"{setting}={port}", "choose a free port")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "CLUSTER_NAME is not set"),
        (["--cluster-name=demo", "--feature-gates=NodeRepare=true"], "gate 'NodeRepare': unknown, expected one of"),
        (["--cluster-name=demo", "--batch-max-duration=10"], "BATCH_MAX_DURATION='10'"),
    ],
)
def test_invalid_setting_is_one_line_with_exit_code_2(
    flags: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER_NAME", raising=False)
    assert main(flags) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == ""
        and captured.err.startswith("tenure: ")
        and expected in captured.err
        and captured.err.count("\n") == 1
    )


def fail_at_startup(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and stderr of a worker whose start raises the error."""

    async def fail(_: Settings) -> None:
        raise error

    monkeypatch.setattr("worker.run", fail)
    monkeypatch.setattr("worker.process.limit_memory", lambda: None)
    monkeypatch.setattr("worker.tune_gc", lambda: None)
    monkeypatch.setattr("worker.configure_logging", lambda *_: None)
    return main(["--cluster-name=demo", "--temporal-address=temporal:7233"]), capsys.readouterr().err


def test_temporal_rejection_at_startup_is_one_line_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
    code, stderr = fail_at_startup(error, monkeypatch, capsys)
    assert code == 2
    assert "Temporal at temporal:7233 rejects these credentials" in stderr and stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "code", "remedy"),
    [
        (Forbidden, 2, "`tenure doctor`"),
        (NotFound, 2, "`tenure doctor`"),
        (Throttled, 1, "start the worker again"),
        (TryLater, 1, "start the worker again"),
        (Conflict, 1, "start the worker again"),
    ],
)
def test_fault_at_startup_is_one_line_with_the_remedy(
    kind: type[Fault], code: int, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = kind("GetManagedResource: not\nauthorized", code="AccessDeniedException")
    found, stderr = fail_at_startup(fault, monkeypatch, capsys)
    assert found == code
    assert stderr.startswith("tenure: GetManagedResource: not authorized; ") and remedy in stderr
    assert stderr.count("\n") == 1


def test_help_lists_settings_without_starting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--cluster-name" in capsys.readouterr().out


def test_settings_reach_their_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    monkeypatch.setenv("BATCH_IDLE_DURATION", "2s")
    monkeypatch.setenv("DRAIN_TIMEOUT", "2h")
    monkeypatch.setenv("MIN_VALUES_POLICY", "BestEffort")
    monkeypatch.setenv("VM_MEMORY_OVERHEAD_PERCENT", "0.1")
    monkeypatch.setenv("SECURITY_GROUP_REFRESH_INTERVAL", "5m")
    found = Settings()
    host, cloud = host_settings(found), aws_settings(found, cluster_dns="fd00::a")
    assert (cloud.cluster_dns, cloud.is_ipv6, cloud.ami_refresh_seconds) == ("fd00::a", True, 60)
    assert (cloud.subnet_refresh_seconds, cloud.security_group_refresh_seconds) == (60, 300)
    assert (host.cluster, host.window.idle.total_seconds()) == ("demo", 2)
    assert host.deadlines.drain.total_seconds() == 7200
    assert host.planning.min_values_policy == "BestEffort"
    assert (host.nominate_pods, host.policy_features) == (False, PolicyFeatures())
    assert (cloud.cluster_name, cloud.vm_memory_overhead_percent) == ("demo", 0.1)


def test_optional_features_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    enabled = Settings(surge_single_replicas=True, hook_local_addresses=True, eviction_requests=True)
    (off, on), kube = [Settings(), enabled], Mock()
    ports = [build_ports(one, Mock(), kube, Mock()) for one in (off, on)]
    assert [one.deployments for one in ports] == [None, kube.rollouts]
    assert [one.eviction_requests for one in ports] == [None, kube.eviction_requests]
    assert host_settings(on).policy_features == PolicyFeatures(surge_single_replicas=True, hook_local_addresses=True)
    assert host_settings(Settings(nominate_pods=True)).nominate_pods


def kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "demo",
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "clusters": [{"name": "demo", "cluster": {"server": server}}],
        "users": [{"name": "demo", "user": {}}],
    }


class _UnavailableOfferings(FakeOfferings):
    async def refresh(self) -> None:
        raise TryLater("EC2 does not answer")


async def test_failed_instance_type_prefetch_does_not_stop_worker() -> None:
    """The first plan that needs instance types reads them again."""
    await read_ahead(_UnavailableOfferings())
