"""`tenure startup-times` reads NodeClaims: an invalid one hides no other, and its error is not in the result."""

import json
from typing import Any, cast

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli.main import main
from tenure.kube.client.client import KubeClient
from tests.support.controller.builders import Json, claim


class Reader:
    """An API server with these NodeClaims."""

    def __init__(self, *claims: Json) -> None:
        self._claims = claims

    async def request(self, method: str, path: str, **_: Any) -> Json:
        return {"items": self._claims, "metadata": {}}

    async def close(self) -> None:
        return


def test_invalid_nodeclaim_hides_no_other(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    odd = claim("odd", phase="Initialized")
    odd["spec"]["resources"] = {"requests": {"cpu": "1" * 100}}

    async def connect(_: str) -> KubeClient:
        return cast(KubeClient, Reader(odd, claim("c1", phase="Initialized")))

    monkeypatch.setattr("tenure.cli.nodes.startups.connect", connect)
    assert main(["startup-times", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert [one["nodeClaim"] for one in json.loads(captured.out)] == ["c1"]
    assert "odd" in captured.err
