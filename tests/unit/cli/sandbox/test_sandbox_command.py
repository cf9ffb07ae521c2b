"""`tenure sandbox`: what it says and asks for where nothing has to run."""

import json
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli.main import main
from tenure.cli.sandbox.command import default_directory, demo_directory, find_directory
from tenure.model.errors import NotFound, TryLater
from tenure.sandbox.state_file import DirectoryLock, Record


class FakeServer:
    """An API server with one Deployment, `inflate`."""

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
    """As if a sandbox ran there, for as long as the lock is held."""
    lock = DirectoryLock(directory)
    Record(pid=1, parts=(), ports={}, environment=environment, reach={"logs": "/logs"}).write(directory)
    return lock


def test_a_deployment_is_scaled_in_the_sandbox_s_own_cluster(
    tmp_path: Path, server: FakeServer, capsys: CaptureFixture[str]
) -> None:
    lock = lock_sandbox(tmp_path, KUBECONFIG="/config")
    where = f"--dir={tmp_path}"
    assert main(["sandbox", "scale", "inflate", "10", where]) == 0
    assert "Deployment default/inflate is to have 10 pods" in capsys.readouterr().out
    path = "/apis/apps/v1/namespaces/default/deployments/inflate/scale"
    assert server.requests == [(path, {"spec": {"replicas": 10}})]
    assert main(["sandbox", "scale", "inflate", "0", where, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["replicas"] == 0
    assert main(["sandbox", "scale", "web", "3", where]) == 2
    assert capsys.readouterr().err == (
        "tenure: sandbox scale web: no such Deployment in this namespace; there are inflate\n"
    )
    lock.release()


def test_no_other_cluster_is_scaled(tmp_path: Path, server: FakeServer, capsys: CaptureFixture[str]) -> None:
    """Whatever KUBECONFIG or ~/.kube may name."""
    assert main(["sandbox", "scale", "inflate", "10", f"--dir={tmp_path}"]) == 2
    assert f"tenure sandbox up --dir {tmp_path}" in capsys.readouterr().err
    lock = lock_sandbox(tmp_path)
    assert main(["sandbox", "scale", "inflate", "10", f"--dir={tmp_path}"]) == 2
    assert "has no cluster" in capsys.readouterr().err and server.requests == []
    lock.release()


def test_where_none_runs_what_starts_one_is_said(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    message = f"no sandbox runs in {tmp_path}; start one: tenure sandbox up --dir {tmp_path}"
    assert main(["sandbox", "status", f"--dir={tmp_path}"]) == 1
    assert main(["sandbox", "down", f"--dir={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines() == [message, message]
    assert main(["sandbox", "status", f"--dir={tmp_path}", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"message": message}


def test_what_runs_is_told_for_people_and_for_scripts(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    lock = lock_sandbox(tmp_path, KUBECONFIG="/a folder/config")
    assert main(["sandbox", "status", f"--dir={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "export KUBECONFIG='/a folder/config'"
    assert main(["sandbox", "status", f"--dir={tmp_path}", "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status == {"processes": {}, "reach": {"logs": "/logs"}, "environment": {"KUBECONFIG": "/a folder/config"}}
    lock.release()


def test_without_a_directory_it_is_that_of_up_or_that_of_a_kept_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert (find_directory(None), find_directory(Path("/mine"))) == (default_directory(), Path("/mine"))
    demo = lock_sandbox(demo_directory())
    assert find_directory(None) == demo_directory()
    both = lock_sandbox(default_directory())
    assert find_directory(None) == default_directory()
    demo.release()
    both.release()
