"""A NodeClaim gets an annotation with the page of its workflow, if the address of the Temporal UI is known."""

import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aiohttp import web

from tenure.apis import labels
from tenure.kube.adapters.nodeclaims import KubeNodeClaims
from tenure.kube.client.events import KubeEvents
from tenure.model.provider_results import ConditionPatch
from tests.support.kube.builders import claim_json
from tests.unit.kube.fake_api import FakeApi, Handler, serve_api
from workflows import ids

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URL = "https://ui/namespaces/default/workflows/demo%2Fnodeclaim%2Fa%2Fuid-a"
DRAINED = ConditionPatch(type=labels.DRAINED, status="True")


class NoEvents:
    async def publish(self, **_: str) -> None: ...


def nodeclaim(**annotations: str) -> dict[str, Any]:
    found = claim_json("a")
    found["metadata"] |= {"uid": "uid-a", "resourceVersion": "1", "annotations": annotations}
    found["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
    return found


def respond_with(item: dict[str, Any], patches: list[Any]) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            patches.append(json.loads(await request.text()))
        return web.json_response(item)

    return respond


@pytest.mark.parametrize(
    ("ui", "before", "written"),
    [
        ("https://ui", {}, [{labels.WORKFLOW_URL: URL}]),
        ("https://ui/", {labels.WORKFLOW_URL: URL}, []),
        ("", {}, []),
    ],
    ids=["missing", "present", "address unknown"],
)
async def test_condition_of_a_nodeclaim_adds_the_missing_annotation(
    ui: str, before: dict[str, str], written: list[dict[str, str]]
) -> None:
    api, patches = FakeApi(), list[Any]()
    api.lists = [respond_with(nodeclaim(**before), patches) for _ in range(3)]
    async with serve_api(api) as client:
        claims = KubeNodeClaims(
            client,
            cast(KubeEvents, NoEvents()),
            lambda name, uid: ids.page_url(ui, "default", ids.nodeclaim("demo", name, uid)),
        )
        await claims.patch("a", "uid-a", conditions=(DRAINED,), now=NOW)
    assert "conditions" in patches[0]["status"]
    assert [one["metadata"]["annotations"] for one in patches[1:]] == written
