"""The worker as a person starts it: what is wrong is one line that says where, and exit code 2."""

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

from tenure.model.errors import TryLater
from tenure.policy.policy_features import PolicyFeatures
from tenure.settings import Settings
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.paths import ROOT
from tests.unit.controller.planning.test_provisioner import FakeOfferings
from worker import aws_settings, build_ports, host_settings, main, read_ahead

NOWHERE = "127.0.0.1:1"
"""Where nobody answers."""


@contextmanager
def occupied_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        yield listening.getsockname()[1]


def run_worker(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The process itself, with nothing of this one's settings in its environment."""
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
    """Where a Temporal service answers."""
    async with time_skipping() as environment:
        yield environment.client.service_client.config.target_host


def test_without_temporal_it_says_where_it_looked() -> None:
    assert_one_line(run_worker(TEMPORAL_ADDRESS=NOWHERE), f"TEMPORAL_ADDRESS='{NOWHERE}'", "connection refused")


async def test_without_a_cluster_it_says_which_kubeconfig_it_read(temporal: str, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig(f"http://{NOWHERE}")))
    assert_one_line(
        run_worker(TEMPORAL_ADDRESS=temporal, KUBECONFIG=str(config)),
        f"KUBECONFIG='{config}'",
        "NodeClaims cannot be listed",
    )


async def test_a_kubeconfig_that_is_not_there_is_named(temporal: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    assert_one_line(run_worker(TEMPORAL_ADDRESS=temporal, KUBECONFIG=missing), f"KUBECONFIG='{missing}'")


def test_a_probe_port_that_is_taken_is_named() -> None:
    with occupied_port() as port:
        assert_one_line(run_worker(HEALTH_PROBE_PORT=str(port)), f"HEALTH_PROBE_PORT={port}", "name a free one")


def test_a_metrics_port_that_is_taken_is_named() -> None:
    with occupied_port() as port:
        assert_one_line(run_worker(METRICS_PORT=str(port)), f"METRICS_PORT={port}", "name a free one")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "CLUSTER_NAME is not set"),
        (["--cluster-name=demo", "--feature-gates=NodeRepare=true"], "gate 'NodeRepare' is unknown; expected one of"),
        (["--cluster-name=demo", "--batch-max-duration=10"], "BATCH_MAX_DURATION='10'"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(
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


def test_what_temporal_refuses_at_the_start_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_connection(_: Settings) -> None:
        raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")

    monkeypatch.setattr("worker.run", fail_connection)
    monkeypatch.setattr("worker.process.limit_arenas", lambda: None)
    monkeypatch.setattr("worker.process.configure_logging", lambda *_: None)
    assert main(["--cluster-name=demo", "--temporal-address=temporal:7233"]) == 2
    stderr = capsys.readouterr().err
    assert "Temporal at temporal:7233 refuses these credentials" in stderr and stderr.count("\n") == 1


def test_help_lists_the_settings_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--cluster-name" in capsys.readouterr().out


def test_settings_reach_those_who_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    monkeypatch.setenv("BATCH_IDLE_DURATION", "2s")
    monkeypatch.setenv("DRAIN_TIMEOUT", "2h")
    monkeypatch.setenv("MIN_VALUES_POLICY", "BestEffort")
    monkeypatch.setenv("VM_MEMORY_OVERHEAD_PERCENT", "0.1")
    found = Settings()
    host, cloud = host_settings(found), aws_settings(found, cluster_dns="fd00::a")
    assert (cloud.cluster_dns, cloud.is_ipv6, cloud.ami_refresh_seconds) == ("fd00::a", True, 60)
    assert (host.cluster, host.task_queue, host.window.idle.total_seconds()) == ("demo", "demo", 2)
    assert host.deadlines.drain.total_seconds() == 7200
    assert host.planning.min_values_policy == "BestEffort"
    assert (host.nominate_pods, host.policy_features) == (False, PolicyFeatures())
    assert (cloud.cluster_name, cloud.vm_memory_overhead_percent) == ("demo", 0.1)


def test_what_needs_a_setting_is_off_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    (off, on), kube = [Settings(), Settings(surge_single_replicas=True, hook_local_addresses=True)], Mock()
    ports = [build_ports(one, Mock(), kube, Mock()) for one in (off, on)]
    assert [one.deployments for one in ports] == [None, kube.rollouts]
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


async def test_a_worker_that_cannot_read_instance_types_ahead_goes_on() -> None:
    """The plan that needs them asks again."""
    await read_ahead(_UnavailableOfferings())
