"""The proxy in front of the API server, with and without fault rules."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tenure.sandbox.certificates import Certificates, serving_context
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.fault_proxy import Cut, Delay, DropResponse, ErrorResponse, Faults, Proxy, Requests
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.ports import Ports
from tests.integration.sandbox.builders import PODS, find, make_node, make_pod
from tests.integration.sandbox.test_processes import wait_until

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def faults(cluster: Sandbox) -> Iterator[Faults]:
    yield cluster.faults
    cluster.faults.clear()


@pytest.fixture
async def proxied(cluster: Sandbox) -> AsyncIterator[KubeApi]:
    """An admin client of the API server, through the proxy."""
    async with KubeApi(cluster.locations()["apiserver by proxy"], cluster.cluster.token, None) as client:
        yield client


async def test_proxy_forwards_requests_without_rules(proxied: KubeApi, api: KubeApi) -> None:
    name = "passed-on"
    created = await proxied.request("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"text": "ä" * 300_000}})
    assert await api.request("GET", f"{CONFIG_MAPS}/{name}") == created
    with pytest.raises(ApiError) as conflict:
        await proxied.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})
    assert conflict.value.status == 409
    await proxied.request("DELETE", f"{CONFIG_MAPS}/{name}")


async def test_proxy_records_writes(proxied: KubeApi, cluster: Sandbox) -> None:
    before = len(cluster.written)
    await proxied.request("POST", CONFIG_MAPS, {"metadata": {"name": "written"}})
    await proxied.request("GET", f"{CONFIG_MAPS}/written")
    await proxied.request("DELETE", f"{CONFIG_MAPS}/written")
    assert cluster.written[before:] == [f"POST {CONFIG_MAPS}", f"DELETE {CONFIG_MAPS}/written"]


async def test_error_response_applies_the_given_number_of_times(proxied: KubeApi, faults: Faults) -> None:
    rule = faults.add(ErrorResponse(429, retry_after=7), r"^/api/v1/nodes$", method="GET", times=2)
    for _ in range(2):
        with pytest.raises(ApiError, match="TooManyRequests") as exc_info:
            await proxied.request("GET", "/api/v1/nodes")
        assert exc_info.value.status == 429
    assert (await proxied.request("GET", "/api/v1/nodes"))["kind"] == "NodeList"
    assert rule.hits == 2


async def test_error_response_has_retry_after_header(proxied: KubeApi, faults: Faults, cluster: Sandbox) -> None:
    faults.add(ErrorResponse(429, retry_after=7))
    async with aiohttp.ClientSession() as session, session.get(cluster.locations()["apiserver by proxy"]) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")


async def test_rule_applies_only_to_its_method_and_path(proxied: KubeApi, faults: Faults) -> None:
    faults.add(ErrorResponse(500), r"^/api/v1/nodes", method="POST")
    assert (await proxied.request("GET", "/api/v1/nodes"))["kind"] == "NodeList"
    assert (await proxied.request("GET", PODS))["kind"] == "PodList"
    with pytest.raises(ApiError, match="InternalError"):
        await proxied.request("POST", "/api/v1/nodes", {"metadata": {"name": "refused"}})


async def test_rule_applies_only_inside_its_block(proxied: KubeApi, faults: Faults) -> None:
    with faults.during(ErrorResponse(503)) as rule, pytest.raises(ApiError):
        await proxied.request("GET", PODS)
    await proxied.request("GET", PODS)
    assert rule.hits == 1


async def test_delayed_request_succeeds_later(proxied: KubeApi, faults: Faults) -> None:
    faults.add(Delay(0.3), times=1)
    started_at = time.monotonic()
    await proxied.request("GET", PODS)
    assert time.monotonic() - started_at >= 0.3


async def test_cut_request_has_no_effect(proxied: KubeApi, api: KubeApi, faults: Faults) -> None:
    faults.add(Cut(), times=1)
    with pytest.raises(aiohttp.ClientError):
        await proxied.request("POST", CONFIG_MAPS, {"metadata": {"name": "never"}})
    assert await find(api, f"{CONFIG_MAPS}/never") is None


async def test_request_with_dropped_response_takes_effect(proxied: KubeApi, api: KubeApi, faults: Faults) -> None:
    faults.add(DropResponse(), times=1)
    with pytest.raises(aiohttp.ClientError):
        await proxied.request("POST", CONFIG_MAPS, {"metadata": {"name": "done"}})
    assert await find(api, f"{CONFIG_MAPS}/done") is not None
    await api.request("DELETE", f"{CONFIG_MAPS}/done")


def test_share_applies_to_that_fraction_of_requests() -> None:
    faults = Faults(Requests())
    rule = faults.add(ErrorResponse(500), share=0.3)
    faulted = [faults.next_fault("GET", "/") is not None for _ in range(1000)]
    assert sum(faulted) == rule.hits
    assert 250 < rule.hits < 350


async def test_watch_streams_until_cut(cluster: Sandbox, api: KubeApi, faults: Faults) -> None:
    url = f"{cluster.locations()['apiserver by proxy']}/api/v1/nodes?watch=true"
    headers = {"Authorization": f"Bearer {cluster.cluster.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as watch:
        await make_node(api, "seen", ready=False)
        event = json.loads(await watch.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "seen")
        assert faults.cut_open("watch=true") == 1
        with pytest.raises(aiohttp.ClientError):
            await watch.content.read()


async def test_watch_closed_by_its_client_is_closed_upstream(cluster: Sandbox, faults: Faults) -> None:
    url = f"{cluster.locations()['apiserver by proxy']}/api/v1/pods?watch=true&labelSelector=left-alone"
    headers = {"Authorization": f"Bearer {cluster.cluster.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url):
        assert faults.open("left-alone") == 1
    await wait_until(lambda: faults.open("left-alone") == 0)


async def test_proxy_serves_tls(cluster: Sandbox) -> None:
    endpoint, ports = cluster.cluster, Ports()
    tls = serving_context(Certificates(endpoint.authority.parent))
    proxy = Proxy(endpoint.server, endpoint.authority, ports.reserve(), tls=tls)
    await proxy.start()
    async with KubeApi(proxy.url, endpoint.token, endpoint.authority) as client:
        assert (await client.request("GET", PODS))["kind"] == "PodList"
    await proxy.stop()
    ports.close()


async def test_proxy_forwards_concurrent_requests(proxied: KubeApi, api: KubeApi) -> None:
    await make_node(api, "first", ready=True)
    await make_pod(api, "one")
    responses = await asyncio.gather(*(proxied.request("GET", f"{PODS}/one") for _ in range(200)))
    assert {response["metadata"]["name"] for response in responses} == {"one"}
