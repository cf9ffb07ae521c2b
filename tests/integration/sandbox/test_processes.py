"""Supervision of child processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.sandbox.launcher import AUTOGROUP
from tenure.sandbox.processes import PartFailed, Process
from tests.support.paths import ROOT

SLEEPS = "import time; print('began', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPS


async def healthy() -> str | None:
    return None


async def never_healthy() -> str | None:
    return "the door is shut"


def has_begun(log: Path) -> bool:
    return log.exists() and "began" in log.read_text()


async def wait_until_begun(log: Path) -> None:
    await wait_until(lambda: has_begun(log))


async def wait_until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not count."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def autogroup(pid: int) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text().strip()


def python(code: str, log: Path, **options: object) -> Process:
    return Process("part", [sys.executable, "-c", code], log=log, **{"health": healthy} | options)  # type: ignore[arg-type]


async def test_error_of_a_failed_start_has_the_log_path_and_last_output(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    part = python("print('first'); print('no such flag'); raise SystemExit(3)", log, health=never_healthy)
    with pytest.raises(PartFailed) as failed:
        await part.start()
    assert "part: ended with exit code 3" in str(failed.value)
    assert str(log) in str(failed.value)
    assert "no such flag" in str(failed.value)


async def test_process_that_never_becomes_healthy_is_stopped(tmp_path: Path) -> None:
    part = python(SLEEPS, tmp_path / "part.log", health=never_healthy, deadline=3)
    with pytest.raises(PartFailed, match=r"not healthy after 3 s \(the door is shut\)"):
        await part.start()
    assert not is_alive(part.pid)


async def test_process_that_ends_later_is_detected(tmp_path: Path) -> None:
    part = python(SLEEPS, tmp_path / "part.log")
    await part.start()
    part.check()
    os.kill(part.pid, signal.SIGKILL)
    await wait_until(lambda: not part.is_running)
    with pytest.raises(PartFailed, match="SIGKILL"):
        part.check()


async def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    part = python(STUBBORN, tmp_path / "part.log")
    await part.start()
    await wait_until_begun(tmp_path / "part.log")
    await part.stop(grace=0.2)
    assert not is_alive(part.pid)


async def test_stop_is_idempotent(tmp_path: Path) -> None:
    part = python(SLEEPS, tmp_path / "part.log")
    await part.start()
    await part.stop()
    await part.stop()
    assert not part.is_running


PARENT = """
import asyncio, pathlib, sys
from tenure.sandbox.launcher import AUTOGROUP
from tenure.sandbox.processes import Process
async def healthy(): return None
async def main():
    part = Process("part", [sys.executable, "-c", sys.argv[2]], log=pathlib.Path(sys.argv[1]), health=healthy)
    await part.start()
    print(part.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def start_parent_and_child(log: Path, code: str, *before: str) -> tuple[asyncio.subprocess.Process, int]:
    """A process with a child that runs the code. Returns both, the child as its pid."""
    command = [*before, sys.executable, "-c", PARENT, str(log), code]
    parent = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout
    child = int(await parent.stdout.readline())
    await wait_until_begun(log)
    return parent, child


async def test_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent, child = await start_parent_and_child(tmp_path / "part.log", STUBBORN)
    assert is_alive(child)
    parent.kill()
    await parent.wait()
    await wait_until(lambda: not is_alive(child))


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no autogroups")
async def test_child_has_the_cpu_priority_of_its_parent(tmp_path: Path) -> None:
    parent, child = await start_parent_and_child(tmp_path / "part.log", SLEEPS, "nice", "-n", "7")
    assert autogroup(child).endswith(f"nice {min(os.nice(0) + 7, 19)}")
    parent.kill()
    await parent.wait()
