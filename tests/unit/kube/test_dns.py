"""The cluster's DNS: its address goes to nodes, and that it cannot be read stops nobody."""

from typing import Any

import pytest
from aiohttp import web

from tenure.kube.adapters.cluster import dns_address
from tests.unit.kube.fake_api import FakeApi, Handler, refused, serving


def service(**spec: Any) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/kube-system/services/kube-dns"
        return web.json_response({"kind": "Service", "spec": spec})

    return answer


@pytest.mark.parametrize(
    ("answers", "address"),
    [
        ([service(clusterIP="10.100.0.10")], "10.100.0.10"),
        ([service(clusterIP="fd00:ec2::a", clusterIPs=["fd00:ec2::a"])], "fd00:ec2::a"),
        ([service(clusterIP="None")], ""),
        ([service()], ""),
        ([refused(404, "NotFound")], ""),
        ([refused(403, "Forbidden")], ""),
        ([refused(500, "InternalError"), service(clusterIP="10.100.0.10")], "10.100.0.10"),
        ([refused(500, "InternalError")] * 5, ""),
    ],
)
async def test_the_address_of_kube_dns_or_nothing(answers: list[Handler], address: str) -> None:
    api = FakeApi()
    api.lists = list(answers)
    async with serving(api) as client:
        assert await dns_address(client, pause=0) == address
    assert api.lists == []
