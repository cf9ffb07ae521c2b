"""The demo, run as a person runs it: what it shows happens, and nothing of it is left, however it ends."""

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
from tests.support.product.eventually import PATIENCE

SMALL = ("--pods=8", "--boot-seconds=1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a demo puts what it makes; whatever it left running there is ended with the test."""
    yield tmp_path
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(place), "XDG_STATE_HOME": str(place / "state")}


def start(place: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """`more`: what its environment has besides."""
    return subprocess.Popen(
        [sys.executable, "-m", "tenure", *arguments],
        cwd=ROOT,
        env=environment(place) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def tenure(place: Path, *arguments: str, **more: str) -> tuple[int, str]:
    command = start(place, *arguments, **more)
    said, _ = command.communicate(timeout=800)
    return command.returncode, said


def processes_of(place: Path) -> list[int]:
    """Those that were told of it in their environment, as the demo was and all that it started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            told = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"TMPDIR={place}".encode() in told.split(b"\0"):
            found.append(int(entry.name))
    return found


def staying(place: Path) -> list[int]:
    """Those that do not end by themselves: a planner does when it notices that its worker is gone."""
    give_up = time.monotonic() + PATIENCE
    while (found := processes_of(place)) and time.monotonic() < give_up:
        time.sleep(0.2)
    return found


def left_in(place: Path) -> list[str]:
    return [path.name for path in place.glob("tenure-demo-*")]


def test_what_it_shows_happens_and_nothing_of_it_is_left(place: Path) -> None:
    code, said = tenure(place, "demo", *SMALL)
    assert code == 0, said
    assert "8 pods Running" in said
    assert "Instances: 2 launched, 2 terminated" in said
    assert "AWS calls" in said
    assert "Temporal UI: http://127.0.0.1:" in said
    assert "FAILED" not in said
    assert (staying(place), left_in(place)) == ([], [])


def test_an_interrupt_in_the_middle_leaves_nothing(place: Path) -> None:
    demo = start(place, "demo", *SMALL)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "Registration" in line:
            break
    # The demo, six parts of the control plane, Temporal, AWS, the nodes, the worker and its planner at least.
    assert len(processes_of(place)) >= 12
    demo.send_signal(signal.SIGINT)
    assert demo.wait(200) == 130
    assert (staying(place), left_in(place)) == ([], [])


class Kept:
    """The kept demo as a person goes on with it: README's lines, after README's `eval`."""

    def __init__(self, place: Path) -> None:
        self._place = place
        code, said = tenure(place, "sandbox", "status")
        assert code == 0, said
        exports = [shlex.split(line)[1] for line in said.splitlines() if line.startswith("export ")]
        self._environment = dict(one.split("=", 1) for one in exports)
        assert {"CLUSTER_NAME", "KUBECONFIG", "TEMPORAL_ADDRESS"} <= set(self._environment), said

    def says(self, *arguments: str) -> str:
        code, said = tenure(self._place, *arguments, **self._environment)
        assert code == 0, said
        return said

    def nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.says("get", "-o", "json"))["nodes"]
        return found

    def ready(self, *, paused: bool, name: str = "") -> dict[str, Any]:
        """The node of that name, or any, once it is listed so; the list comes a moment later."""
        give_up = time.monotonic() + PATIENCE
        while True:
            found = self.nodes()
            for one in found:
                if one["phase"] == "Ready" and one["node"] and one["paused"] == paused and name in ("", one["node"]):
                    return one
            assert time.monotonic() < give_up, found
            time.sleep(0.5)


def test_a_kept_one_goes_on_until_it_is_taken_down(place: Path) -> None:
    directory = f"--dir={place / 'state' / 'tenure' / 'demo'}"
    code, said = tenure(place, "demo", "--keep", *SMALL)
    assert code == 0, said
    assert "export KUBECONFIG=" in said
    assert tenure(place, "sandbox", "status", directory)[0] == 0
    follow_readme(Kept(place))
    assert tenure(place, "demo", "--keep", *SMALL)[0] == 2
    assert tenure(place, "sandbox", "down", directory)[0] == 0
    assert staying(place) == []


def follow_readme(kept: Kept) -> None:
    assert "is to have 10 pods" in kept.says("sandbox", "scale", "inflate", "10")
    one = kept.ready(paused=False)
    claim, node = one["nodeClaim"], one["node"]
    assert node in row_of(claim, kept.says("get"))
    story = kept.says("why", node)
    assert claim in story and "Ready" in story
    paused = kept.says("pause", "--node", node, "--for", "30m", "--reason", "trying it out")
    assert f"NodeClaim {claim} is paused until" in paused, paused
    kept.ready(paused=True, name=node)
    assert "Ready paused" in row_of(claim, kept.says("get"))
    assert "trying it out" in kept.says("why", node)
    resumed = kept.says("resume", "--node", node)
    assert f"NodeClaim {claim} goes on" in resumed, resumed
    kept.ready(paused=False, name=node)
    assert "paused" not in row_of(claim, kept.says("get"))


def row_of(claim: str, table: str) -> str:
    found = [line for line in table.splitlines() if line.split()[:1] == [claim]]
    assert len(found) == 1, table
    return found[0]
