"""How the node simulator reads the control API of the fake AWS: changes, removed instances, resets, and its absence."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tenure.sandbox.nodes.instance_source import AnySource, FakeAwsSource
from tenure.sandbox.nodes.instances import Instance

REGION = "us-west-2"


class ScriptedApi:
    """Returns prepared responses in order, and records queries."""

    def __init__(self) -> None:
        self.responses: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.has_control_api = True

    async def instances(self, request: web.Request) -> web.Response:
        self.queries.append(dict(request.query))
        if not self.has_control_api:
            return web.Response(status=404)
        return web.json_response(self.responses.pop(0))

    def add_response(
        self, revision: int, *instances: dict[str, Any], alive: int, deleted: tuple[str, ...] = ()
    ) -> None:
        self.responses.append({"revision": revision, "instances": instances, "alive": alive, "gone": deleted})


class Other:
    """A source without the control API."""

    async def next(self) -> dict[str, Instance]:
        return {"i-other": Instance(id="i-other", state="running", instance_type="m5.large", zone="us-west-2a")}


@pytest.fixture
async def script() -> ScriptedApi:
    return ScriptedApi()


@pytest.fixture
async def source(script: ScriptedApi) -> AsyncIterator[FakeAwsSource]:
    app = web.Application()
    app.router.add_get("/_sim/instances", script.instances)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield FakeAwsSource(session, str(server.make_url("/")), REGION)


def described(number: int, state: str = "running") -> dict[str, Any]:
    return {
        "id": f"i-{number}",
        "state": state,
        "instance_type": "m5.large",
        "zone": "us-west-2a",
        "zone_id": "usw2-az1",
        "private_ip": f"10.0.0.{number}",
        "architecture": "x86_64",
        "fleet_id": None,
        "tags": {"a": "b"},
    }


async def test_first_query_is_complete_and_later_queries_return_changes(
    source: FakeAwsSource, script: ScriptedApi
) -> None:
    script.add_response(3, described(1), described(2, "pending"), alive=2)
    script.add_response(4, described(2), alive=2)
    first, second = await source.next(), await source.next()
    assert [query["after"] for query in script.queries] == ["-1", "3"]
    assert {name: found.state for name, found in first.items()} == {"i-1": "running", "i-2": "pending"}
    assert {name: found.state for name, found in second.items()} == {"i-1": "running", "i-2": "running"}


async def test_instance_has_ec2_attributes(source: FakeAwsSource, script: ScriptedApi) -> None:
    script.add_response(1, described(7), alive=1)
    found = (await source.next())["i-7"]
    assert found.node_name == "ip-10-0-0-7.us-west-2.compute.internal"
    assert found.provider_id == "aws:///us-west-2a/i-7"
    assert (found.zone_id, found.tags) == ("usw2-az1", {"a": "b"})


async def test_removed_instance_is_not_returned(source: FakeAwsSource, script: ScriptedApi) -> None:
    script.add_response(3, described(1), described(2, "terminated"), alive=1)
    script.add_response(4, alive=1, deleted=("i-2",))
    await source.next()
    assert set(await source.next()) == {"i-1"}


async def test_reset_is_detected_by_lower_revision(source: FakeAwsSource, script: ScriptedApi) -> None:
    script.add_response(9, described(1), alive=1)
    script.add_response(2, alive=1)
    script.add_response(2, described(5), alive=1)
    await source.next()
    assert set(await source.next()) == {"i-5"}
    assert [query["after"] for query in script.queries] == ["-1", "9", "-1"]


async def test_reset_is_detected_by_missing_instances(source: FakeAwsSource, script: ScriptedApi) -> None:
    script.add_response(2, described(1), alive=1)
    script.add_response(8, described(7), alive=4)
    script.add_response(8, *(described(number) for number in (4, 5, 6, 7)), alive=4)
    await source.next()
    assert set(await source.next()) == {"i-4", "i-5", "i-6", "i-7"}


async def test_missing_control_api_falls_back_to_ec2(source: FakeAwsSource, script: ScriptedApi) -> None:
    script.has_control_api = False
    assert set(await AnySource(source, Other()).next()) == {"i-other"}
