"""Taints of Nodes are logged where they change."""

from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tenure.apis import labels
from tenure.kube.adapters.nodes import KubeNodes
from tests.support.kube.builders import node_json
from tests.unit.kube.fake_api import FakeApi, Handler, serve_api

TAINT = {"key": labels.DISRUPTED_TAINT_KEY, "effect": "NoSchedule"}


def node(*taints: dict[str, str]) -> dict[str, Any]:
    found = node_json("n1")
    found["metadata"] |= {"uid": "uid-n1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T12:00:00Z"}
    found["metadata"]["labels"] = {labels.NODEPOOL: "general", labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}
    found["spec"] |= {"providerID": "aws:///us-west-2a/i-1", "taints": list(taints)}
    return found


def response(item: dict[str, Any]) -> Handler:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.json_response(item)

    return respond


@pytest.mark.usefixtures("plain_log")
@pytest.mark.parametrize(
    ("method", "before", "after", "messages"),
    [
        ("mark_disrupted", node(), node(TAINT), ["tainted node"]),
        ("mark_disrupted", node(TAINT), node(TAINT), []),
        ("unmark_disrupted", node(TAINT), node(), ["untainted node"]),
    ],
)
async def test_change_of_the_taint_is_logged_once(
    method: str, before: dict[str, Any], after: dict[str, Any], messages: list[str]
) -> None:
    api = FakeApi()
    api.lists = [response(before), response(after)]
    async with serve_api(api) as client:
        with capture_logs() as logs:
            await getattr(KubeNodes(client), method)("n1")
    assert [one["event"] for one in logs] == messages
    for one in logs:
        assert (one["Node"], one["NodePool"]) == ({"name": "n1"}, {"name": "general"})
        assert one["provider-id"] == "aws:///us-west-2a/i-1"
