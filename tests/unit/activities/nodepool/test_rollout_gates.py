"""A health gate queries Prometheus over HTTP: passed, failed with the value, or unknown with the reason."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities.nodepool.rollout import RolloutActivities
from tenure.model.rollout import GateResult, HealthGate
from tests.support.fakes.ports import FakePorts
from tests.unit.activities.builders import run_activity

VECTOR = {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, "3"]}, {"metric": {}, "value": [1.0, "7"]}]}


class Prometheus:
    """Responds as configured and records the query."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = VECTOR
        self.reply: web.Response | None = None
        self.received_query: dict[str, str] = {}
        self.closes_connection = False

    async def handle_query(self, request: web.Request) -> web.StreamResponse:
        self.received_query = dict(request.query)
        if self.closes_connection and request.transport:
            request.transport.close()
        return self.reply or web.json_response({"status": "success", "data": self.data})


@pytest.fixture
def prometheus() -> Prometheus:
    return Prometheus()


@pytest.fixture
async def url(prometheus: Prometheus) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/prom/api/v1/query", prometheus.handle_query)
    async with TestServer(app) as server:
        yield str(server.make_url("/prom/"))


async def query_gate(url: str, **limit: Any) -> GateResult:
    gate = HealthGate(name="errors", query="sum(errors)", **limit)
    activities = RolloutActivities(FakePorts().build_ports(prometheus_url=url))
    found = await run_activity(activities.query_health_gate, gate)
    assert found.gate == gate.id
    return found


@pytest.mark.parametrize(
    ("limit", "outcome", "value", "why"),
    [
        ({"below": 8.0}, "passed", 7, ""),
        ({"below": 7.0}, "failed", 7, "errors: 7 is not below 7"),
        ({"below": 5.0}, "failed", 7, "errors: 7 is not below 5"),
        ({"above": 2.0}, "passed", 3, ""),
        ({"above": 5.0}, "failed", 3, "errors: 3 is not above 5"),
    ],
)
async def test_worst_series_is_compared_with_limit(
    url: str, limit: dict[str, float], outcome: str, value: float, why: str
) -> None:
    found = await query_gate(url, **limit)
    assert (found.outcome, found.value, found.why) == (outcome, value, why)


async def test_scalar_result_is_a_number(url: str, prometheus: Prometheus) -> None:
    prometheus.data = {"resultType": "scalar", "result": [1.0, "0.5"]}
    assert (await query_gate(url, below=1.0)).value == 0.5


async def test_query_and_timeout_are_sent(url: str, prometheus: Prometheus) -> None:
    await query_gate(url, below=1.0, timeout=timedelta(seconds=30))
    assert prometheus.received_query == {"query": "sum(errors)", "timeout": "30s"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"resultType": "vector", "result": []}, "the query returned no series"),
        ({"resultType": "scalar", "result": [1.0, "NaN"]}, "the query returned NaN"),
        ({"resultType": "matrix", "result": []}, "a matrix: invalid result"),
        ({"resultType": "vector", "result": [{}]}, "invalid response from Prometheus: KeyError('value')"),
    ],
)
async def test_non_numeric_result_is_unknown(url: str, prometheus: Prometheus, data: dict[str, Any], why: str) -> None:
    prometheus.data = data
    found = await query_gate(url, below=1.0)
    assert (found.outcome, found.value) == ("unknown", None)
    assert why in found.why


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (web.json_response({"status": "error", "error": "parse error"}, status=400), "returned 400 parse error"),
        (web.json_response(["what"], status=200), "returned 200"),
        (web.Response(text="<html>bad gateway</html>", status=502), "no response from http://"),
    ],
)
async def test_error_response_is_unknown(url: str, prometheus: Prometheus, reply: web.Response, why: str) -> None:
    prometheus.reply = reply
    found = await query_gate(url, below=1.0)
    assert found.outcome == "unknown"
    assert why in found.why


async def test_unreachable_prometheus_is_unknown(url: str, prometheus: Prometheus) -> None:
    prometheus.closes_connection = True
    assert (await query_gate(url, below=1.0)).outcome == "unknown"
    assert "no response from http://127.0.0.1:1" in (await query_gate("http://127.0.0.1:1", below=1.0)).why


async def test_slow_prometheus_times_out() -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    app = web.Application()
    app.router.add_get("/api/v1/query", never)
    async with TestServer(app) as server:
        found = await query_gate(str(server.make_url("")), below=1.0, timeout=timedelta(seconds=0.2))
    assert found.outcome == "unknown"
    assert "within 0.2s" in found.why


async def test_missing_prometheus_url_is_named() -> None:
    assert (await query_gate("", below=1.0)).why == "the worker's PROMETHEUS_URL is not set"


async def test_password_in_url_is_not_reported() -> None:
    why = (await query_gate("http://ann:secret@127.0.0.1:1", below=1.0)).why
    assert "http://127.0.0.1:1" in why
    assert "secret" not in why
