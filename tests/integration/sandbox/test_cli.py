"""`tenure sandbox` from a shell."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import aiohttp
import pytest

from tenure.sandbox.ports import Ports
from tenure.sandbox.state_file import Record, is_running
from tests.integration.sandbox.test_processes import is_alive, wait_until
from tests.support.paths import ROOT


async def start_cli(*arguments: str) -> Process:
    command = [sys.executable, "-m", "tenure", "sandbox", *arguments]
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)


async def run_cli(*arguments: str) -> tuple[int | None, str, str]:
    process = await start_cli(*arguments)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def read_until(process: Process, text: str) -> str:
    """The process's output up to the line with this text. Fails if the process ends before."""
    assert process.stdout
    output = ""
    while text not in output:
        line = (await process.stdout.readline()).decode()
        assert line, f"ended after: {output}"
        output += line
    return output


async def test_sandbox_up_status_and_down(tmp_path: Path) -> None:
    directory = f"--dir={tmp_path}"
    code, out, err = await run_cli("up", directory, "--parts=temporal,aws", "--detach")
    assert (code, err) == (0, "starting temporal, aws\n")
    record = Record.read(tmp_path)
    assert record and f"export AWS_ENDPOINT_URL={record.environment['AWS_ENDPOINT_URL']}" in out
    code, out, _ = await run_cli("status", directory)
    assert code == 0 and "temporal" in out and "EXITED" not in out
    code, _, err = await run_cli("up", directory, "--parts=temporal")
    assert (code, err.count("\n")) == (2, 1) and str(tmp_path) in err
    assert (await run_cli("down", directory))[0] == 0
    assert not any(map(is_alive, record.processes.values()))
    code, out, _ = await run_cli("status", directory)
    assert code == 1 and str(tmp_path) in out
    assert (await run_cli("down", directory))[0] == 0


async def test_sandbox_ends_when_a_component_ends(tmp_path: Path) -> None:
    up = await start_cli("up", f"--dir={tmp_path}", "--parts=temporal")
    await read_until(up, "Ctrl-C")
    record = Record.read(tmp_path)
    assert record
    os.kill(record.processes["temporal"], signal.SIGKILL)
    _, err = await up.communicate()
    assert up.returncode == 1
    assert b"temporal: ended with signal SIGKILL" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupt_stops_all_components(tmp_path: Path, number: signal.Signals) -> None:
    up = await start_cli("up", f"--dir={tmp_path}", "--parts=temporal,kubernetes")
    await read_until(up, "Ctrl-C")
    record = Record.read(tmp_path)
    assert record
    up.send_signal(number)
    assert await up.wait() == 0
    assert not any(map(is_alive, record.processes.values()))
    assert names_in(tmp_path) == ["logs", "sandbox.json", "sandbox.lock"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_component_started_in_the_background_handles_signals(tmp_path: Path, number: signal.Signals) -> None:
    """Without job control, a shell starts a background command (`&`) with SIGINT ignored."""
    command = (sys.executable, "-m", "tenure", "sandbox", "aws", f"--dir={tmp_path}")
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    part = await asyncio.create_subprocess_exec(sys.executable, "-c", ignoring, *command, cwd=ROOT, stdout=PIPE)
    await read_until(part, "Ctrl-C")
    record = Record.read(tmp_path)
    assert record
    part.send_signal(number)
    assert await asyncio.wait_for(part.wait(), 30) == 0
    assert not any(map(is_alive, record.processes.values()))


async def test_interrupt_during_start_leaves_no_process(tmp_path: Path) -> None:
    up = await start_cli("up", f"--dir={tmp_path}", "--parts=temporal,kubernetes")
    await wait_until((tmp_path / "logs" / "kube-apiserver.log").exists)
    up.send_signal(signal.SIGINT)
    await up.wait()
    assert not is_running(tmp_path)
    await wait_until(lambda: not any(is_process_of(path, tmp_path) for path in Path("/proc").glob("[0-9]*")))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_process_of(process: Path, directory: Path) -> bool:
    try:
        return str(directory).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


async def test_component_listens_on_the_given_port(tmp_path: Path) -> None:
    ports = Ports()
    port = ports.reserve()
    ports.close()
    part = await start_cli("aws", f"--port={port}", f"--dir={tmp_path}", "--", "--pending-seconds=3")
    output = await read_until(part, "Ctrl-C")
    assert f"AWS_ENDPOINT_URL=http://127.0.0.1:{port}" in output
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/_sim/health") as response:
        assert response.status == 200
    code, _, err = await run_cli("aws", f"--port={port}")
    assert (code, err) == (2, f"tenure: port {port} is in use\n")
    part.send_signal(signal.SIGINT)
    assert await part.wait() == 0


async def test_unknown_component_is_one_error_line_and_exit_code_2() -> None:
    code, _, err = await run_cli("up", "--parts=temporal,mesos")
    assert (code, err.count("\n")) == (2, 1)
    assert "mesos" in err
