"""The demo, started as a user starts it: its output, and its cleanup at the end or after an interrupt."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.product.eventually import TIMEOUT_SECONDS

SMALL = ("--pods=8", "--boot-seconds=1")


@pytest.fixture
def demo_dir(tmp_path: Path) -> Iterator[Path]:
    """The demo's temporary directory. Processes that the demo left running are killed after the test."""
    yield tmp_path
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def environment(demo_dir: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(demo_dir), "XDG_STATE_HOME": str(demo_dir / "state")}


def start(demo_dir: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """`more`: additional environment variables."""
    return subprocess.Popen(
        [sys.executable, "-m", "tenure", *arguments],
        cwd=ROOT,
        env=environment(demo_dir) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_cli(demo_dir: Path, *arguments: str, **more: str) -> tuple[int, str]:
    command = start(demo_dir, *arguments, **more)
    output, _ = command.communicate(timeout=800)
    return command.returncode, output


def processes_of(demo_dir: Path) -> list[int]:
    """Processes with this TMPDIR in their environment: the demo and all that it started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            process_environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"TMPDIR={demo_dir}".encode() in process_environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def wait_until_ended(demo_dir: Path) -> list[int]:
    """Processes that do not end by themselves. A planner ends when it notices that its worker is gone."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (found := processes_of(demo_dir)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def remaining_dirs(demo_dir: Path) -> list[str]:
    return [path.name for path in demo_dir.glob("tenure-demo-*")]


def test_demo_completes_and_leaves_nothing(demo_dir: Path) -> None:
    code, output = run_cli(demo_dir, "demo", *SMALL)
    assert code == 0, output
    assert "8 pods Running" in output
    assert "Instances: 2 launched, 2 terminated" in output
    assert "AWS calls" in output
    assert "Temporal UI: http://127.0.0.1:" in output
    assert "FAILED" not in output
    assert (wait_until_ended(demo_dir), remaining_dirs(demo_dir)) == ([], [])


def test_interrupted_demo_leaves_nothing(demo_dir: Path) -> None:
    demo = start(demo_dir, "demo", "--pods=8", "--boot-seconds=600")
    assert demo.stdout is not None
    printed = []
    for line in demo.stdout:
        printed.append(line)
        if "Registration" in line:
            break
    assert demo.poll() is None, "".join(printed)
    # At least the demo, six components of the control plane, Temporal, AWS, nodes, the worker and its planner.
    assert len(processes_of(demo_dir)) >= 12
    demo.send_signal(signal.SIGINT)
    assert demo.wait(200) == 130
    assert (wait_until_ended(demo_dir), remaining_dirs(demo_dir)) == ([], [])


class RunningDemo:
    """A demo started with `--keep`, used with the commands of the README after its `eval`."""

    def __init__(self, demo_dir: Path) -> None:
        self._demo_dir = demo_dir
        code, output = run_cli(demo_dir, "sandbox", "status")
        assert code == 0, output
        exports = [shlex.split(line)[1] for line in output.splitlines() if line.startswith("export ")]
        self._environment = dict(one.split("=", 1) for one in exports)
        assert {"CLUSTER_NAME", "KUBECONFIG", "TEMPORAL_ADDRESS"} <= set(self._environment), output
        assert row_of("worker", output).split()[1] == "runs" and "/metrics" in row_of("worker metrics", output)

    def run_cli(self, *arguments: str) -> str:
        code, output = run_cli(self._demo_dir, *arguments, **self._environment)
        assert code == 0, output
        return output

    def nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run_cli("get", "-o", "json"))["nodes"]
        return found

    def wait_until_ready(self, *, paused: bool, name: str = "") -> dict[str, Any]:
        """Wait until a Ready node is listed, of this name if given; visibility lags."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = self.nodes()
            for one in found:
                if one["phase"] == "Ready" and one["node"] and one["paused"] == paused and name in ("", one["node"]):
                    return one
            assert time.monotonic() < deadline, found
            time.sleep(0.5)


def test_kept_demo_runs_until_sandbox_down(demo_dir: Path) -> None:
    directory = f"--dir={demo_dir / 'state' / 'tenure' / 'demo'}"
    code, output = run_cli(demo_dir, "demo", "--keep", *SMALL)
    assert code == 0, output
    assert "export KUBECONFIG=" in output
    assert run_cli(demo_dir, "sandbox", "status", directory)[0] == 0
    follow_readme(RunningDemo(demo_dir))
    assert run_cli(demo_dir, "demo", "--keep", *SMALL)[0] == 2
    assert run_cli(demo_dir, "sandbox", "down", directory)[0] == 0
    assert wait_until_ended(demo_dir) == []


def follow_readme(running_demo: RunningDemo) -> None:
    assert "scaled to 10 replicas" in running_demo.run_cli("sandbox", "scale", "inflate", "10")
    one = running_demo.wait_until_ready(paused=False)
    claim, node = one["nodeClaim"], one["node"]
    assert node in row_of(claim, running_demo.run_cli("get", "-o", "wide"))
    explanation = running_demo.run_cli("why", node)
    assert claim in explanation and "Ready" in explanation
    paused = running_demo.run_cli("pause", "--node", node, "--for", "30m", "--reason", "trying it out")
    assert f"NodeClaim {claim} is paused until" in paused, paused
    running_demo.wait_until_ready(paused=True, name=node)
    assert "Ready paused" in row_of(claim, running_demo.run_cli("get"))
    assert "trying it out" in running_demo.run_cli("why", node)
    resumed = running_demo.run_cli("resume", "--node", node)
    assert f"NodeClaim {claim} is no longer paused" in resumed, resumed
    running_demo.wait_until_ready(paused=False, name=node)
    assert "paused" not in row_of(claim, running_demo.run_cli("get"))


def row_of(name: str, table: str) -> str:
    """The row whose first column is `name`. At least two spaces separate columns."""
    found = [line for line in table.splitlines() if line.partition("  ")[0] == name]
    assert len(found) == 1, table
    return found[0]
