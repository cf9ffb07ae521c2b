"""`tenure sandbox`: output and requests without a running environment."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli.exit_codes import end_like_ctrl_c
from tenure.cli.main import main
from tenure.cli.sandbox.command import default_directory, demo_directory, find_directory
from tenure.model.errors import NotFound, TryLater
from tenure.sandbox.state_file import DirectoryLock, Record


class FakeServer:
    """A fake API server with one Deployment, `inflate`."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, object]] = []

    async def request(self, method: str, path: str, *, body: object = None, **_: Any) -> dict[str, Any]:
        if method == "GET":
            return {"items": [{"metadata": {"name": "inflate"}}]}
        if not path.endswith("/inflate/scale"):
            raise NotFound(f"{path}: not found")
        self.requests.append((path, body))
        return {}

    async def close(self) -> None:
        return None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    found = FakeServer()

    async def connect(kubeconfig: str) -> FakeServer:
        if kubeconfig != "/config":
            raise TryLater(f"{kubeconfig}: nobody answers")
        return found

    monkeypatch.setattr("tenure.cli.sandbox.command.connect", connect)
    return found


def lock_sandbox(directory: Path, **environment: str) -> DirectoryLock:
    """Lock the directory as a running sandbox does."""
    lock = DirectoryLock(directory)
    Record(pid=1, parts=(), ports={}, environment=environment, reach={"logs": "/logs"}).write(directory)
    return lock


def test_deployment_is_scaled_in_sandbox_cluster(
    tmp_path: Path, server: FakeServer, capsys: CaptureFixture[str]
) -> None:
    lock = lock_sandbox(tmp_path, KUBECONFIG="/config")
    where = f"--dir={tmp_path}"
    assert main(["sandbox", "scale", "inflate", "10", where]) == 0
    assert "Deployment default/inflate scaled to 10 replicas" in capsys.readouterr().out
    path = "/apis/apps/v1/namespaces/default/deployments/inflate/scale"
    assert server.requests == [(path, {"spec": {"replicas": 10}})]
    assert main(["sandbox", "scale", "inflate", "0", where, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["replicas"] == 0
    assert main(["sandbox", "scale", "web", "3", where]) == 2
    assert capsys.readouterr().err == (
        "tenure: sandbox scale web: no such Deployment in this namespace; found inflate\n"
    )
    lock.release()


def test_other_clusters_are_never_scaled(tmp_path: Path, server: FakeServer, capsys: CaptureFixture[str]) -> None:
    """KUBECONFIG and ~/.kube do not matter."""
    assert main(["sandbox", "scale", "inflate", "10", f"--dir={tmp_path}"]) == 2
    assert f"tenure sandbox up --dir {tmp_path}" in capsys.readouterr().err
    lock = lock_sandbox(tmp_path)
    assert main(["sandbox", "scale", "inflate", "10", f"--dir={tmp_path}"]) == 2
    assert "has no cluster" in capsys.readouterr().err and server.requests == []
    lock.release()


def test_missing_sandbox_names_start_command(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    message = f"no sandbox runs in {tmp_path}; start one: tenure sandbox up --dir {tmp_path}"
    assert main(["sandbox", "status", f"--dir={tmp_path}"]) == 1
    assert main(["sandbox", "down", f"--dir={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines() == [message, message]
    assert main(["sandbox", "status", f"--dir={tmp_path}", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"message": message}


def test_running_sandbox_is_described_as_text_and_json(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    lock = lock_sandbox(tmp_path, KUBECONFIG="/a folder/config")
    assert main(["sandbox", "status", f"--dir={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "export KUBECONFIG='/a folder/config'"
    assert main(["sandbox", "status", f"--dir={tmp_path}", "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status == {"processes": {}, "reach": {"logs": "/logs"}, "environment": {"KUBECONFIG": "/a folder/config"}}
    lock.release()


def test_default_directory_is_of_sandbox_or_kept_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert (find_directory(None), find_directory(Path("/mine"))) == (default_directory(), Path("/mine"))
    demo = lock_sandbox(demo_directory())
    assert find_directory(None) == demo_directory()
    both = lock_sandbox(default_directory())
    assert find_directory(None) == default_directory()
    demo.release()
    both.release()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_whose_keyboard_interrupt_is_ignored_is_recorded(number: signal.Signals) -> None:
    previous = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        received_signals = end_like_ctrl_c()
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert received_signals == [number]
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)
