"""A nodeClassRef and a scalableRef can have any text. A name that no object can have counts as missing, without a
call."""

import pytest
from aiohttp import web

from tenure.kube.adapters.karpenter_objects import KubeCapacityBuffers, KubeNodeClasses
from tenure.kube.client.events import KubeEvents
from tests.unit.kube.fake_api import FakeApi, error_response, serve_api


@pytest.mark.parametrize("name", [" ", " \t\n" * 5_000, ".", "..", "a/b", "a%b", "A", "a" * 254, "٣", "\ud800"])
async def test_impossible_name_is_missing_without_a_call(name: str) -> None:
    api = FakeApi()
    api.lists = [error_response(400, "BadRequest")]
    async with serve_api(api) as client:
        assert await KubeNodeClasses(client, KubeEvents(client)).get(name) is None
        assert await KubeCapacityBuffers(client).get_workload("default", "Deployment", name) is None
    assert api.requests == []


@pytest.mark.parametrize("name", ["default", "a", "team-a.default", "a" * 253])
async def test_possible_name_is_read(name: str) -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": request.path.rpartition("/")[2]}})

    api = FakeApi()
    api.lists = [respond, respond]
    async with serve_api(api) as client:
        found = await KubeNodeClasses(client, KubeEvents(client)).get(name)
        workload = await KubeCapacityBuffers(client).get_workload("default", "Deployment", name)
    assert found is not None and found.metadata.name == name
    assert workload == {"metadata": {"name": name}}
