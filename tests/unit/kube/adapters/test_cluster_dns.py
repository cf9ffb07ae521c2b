"""The cluster's DNS address, which user data contains; an unreadable Service yields no address and no error."""

from typing import Any

import pytest
from aiohttp import web

from tenure.kube.adapters.cluster import dns_address
from tests.unit.kube.fake_api import FakeApi, Handler, error_response, serve_api


def service_response(**spec: Any) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/kube-system/services/kube-dns"
        return web.json_response({"kind": "Service", "spec": spec})

    return respond


@pytest.mark.parametrize(
    ("responses", "address"),
    [
        ([service_response(clusterIP="10.100.0.10")], "10.100.0.10"),
        ([service_response(clusterIP="fd00:ec2::a", clusterIPs=["fd00:ec2::a"])], "fd00:ec2::a"),
        ([service_response(clusterIP="None")], ""),
        ([service_response()], ""),
        ([error_response(404, "NotFound")], ""),
        ([error_response(403, "Forbidden")], ""),
        ([error_response(500, "InternalError"), service_response(clusterIP="10.100.0.10")], "10.100.0.10"),
        ([error_response(500, "InternalError")] * 5, ""),
    ],
)
async def test_dns_address_is_that_of_kube_dns_or_empty(responses: list[Handler], address: str) -> None:
    api = FakeApi()
    api.lists = list(responses)
    async with serve_api(api) as client:
        assert await dns_address(client, pause=0) == address
    assert api.lists == []
