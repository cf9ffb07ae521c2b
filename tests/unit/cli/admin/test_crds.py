"""`tenure crds` prints the shipped CRDs, and `--apply` applies them and reports their names."""

import json
from typing import Any

import pytest
import yaml
from _pytest.capture import CaptureFixture

from deploy.resources import crd_files
from tenure.cli.main import main
from tenure.model.errors import Forbidden

NAMES = [file.stem.partition("_")[2] + "." + file.stem.partition("_")[0] for file in crd_files()]


class FakeServer:
    """A fake API server that records requests."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._fault = fault

    async def request(self, method: str, path: str, *, params: dict[str, str], **_: Any) -> dict[str, Any]:
        if self._fault:
            raise self._fault
        self.requests.append((method, path.rpartition("/")[2], params))
        return {}

    async def close(self) -> None:
        self.requests.append(("closed", "", {}))


def use_server(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> None:
    async def connect(_: str) -> FakeServer:
        return server

    monkeypatch.setattr("tenure.cli.admin.crds.connect", connect)


def test_crds_are_printed_as_yaml(capsys: CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["metadata"]["name"] for one in documents] == NAMES
    assert {one["kind"] for one in documents} == {"CustomResourceDefinition"}


def test_crds_are_printed_as_json_and_as_names(capsys: CaptureFixture[str]) -> None:
    assert main(["crds", "-o", "names"]) == 0
    assert capsys.readouterr().out.splitlines() == NAMES
    assert main(["crds", "-o", "json"]) == 0
    assert [one["metadata"]["name"] for one in json.loads(capsys.readouterr().out)] == NAMES


def test_apply_uses_field_manager_and_names_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    server = FakeServer()
    use_server(monkeypatch, server)
    assert main(["crds", "--apply"]) == 0
    assert [name for method, name, _ in server.requests if method == "PATCH"] == NAMES
    assert server.requests[0][2] == {"fieldManager": "tenure", "force": "true"} and server.requests[-1][0] == "closed"
    assert "tenure doctor" in capsys.readouterr().out


def test_forbidden_apply_names_missing_permission(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    use_server(monkeypatch, FakeServer(Forbidden("may not patch")))
    assert main(["crds", "--apply"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert NAMES[0] in line and "may not patch" in line and "CustomResourceDefinitions" in line
