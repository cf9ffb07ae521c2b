"""The demo, run as a person runs it: what it shows happens, and nothing of it is left, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.eventually import PATIENCE

ROOT = Path(__file__).parents[2]
SMALL = ("--pods=8", "--boot-seconds=1")

pytestmark = pytest.mark.sandbox


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a demo puts what it makes; whatever it left running there is ended with the test."""
    yield tmp_path
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(place), "XDG_STATE_HOME": str(place / "state")}


def start(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments],
        cwd=ROOT,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def tenure(place: Path, *arguments: str) -> tuple[int, str]:
    command = start(place, *arguments)
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


def test_a_kept_one_goes_on_until_it_is_taken_down(place: Path) -> None:
    directory = f"--dir={place / 'state' / 'tenure' / 'demo'}"
    code, said = tenure(place, "demo", "--keep", *SMALL)
    assert code == 0, said
    assert "export KUBECONFIG=" in said
    assert tenure(place, "sandbox", "status", directory)[0] == 0
    code, said = tenure(place, "sandbox", "scale", "inflate", "1")
    assert code == 0, said
    assert tenure(place, "demo", "--keep", *SMALL)[0] == 2
    assert tenure(place, "sandbox", "down", directory)[0] == 0
    assert staying(place) == []
