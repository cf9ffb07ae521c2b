"""Without DNS every call is retried, and the endpoint is reported once."""

import pytest
from kubernetes.aio.client import Configuration

from tenure.endpoints import MIN_FAILURES, Endpoints
from tenure.kube.client.client import ENDPOINT, KubeClient
from tenure.model.errors import TryLater
from tests.support.injected_errors import fail_to_resolve, lose_dns
from tests.unit.kube.fake_api import FakeApi, serve_api


async def test_failed_name_resolution_is_retryable_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lose_dns(monkeypatch)
    observed: list[tuple[str, bool]] = []
    client = KubeClient(
        Configuration(host="https://api.example"), endpoints=Endpoints(lambda *found: observed.append(found))
    )
    try:
        for _ in range(2 * MIN_FAILURES):
            with pytest.raises(TryLater, match="name resolution") as caught:
                await client.request("DELETE", "/api/v1/nodes/a")
            assert caught.value.retryable and caught.value.is_unreachable
            with pytest.raises(TryLater, match="name resolution"):
                async with client.stream_lines("/api/v1/nodes", params={}, silence=1):
                    pass
    finally:
        await client.close()
    assert observed == [(ENDPOINT, True)]


async def test_resolution_error_that_aiohttp_does_not_wrap_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_api(FakeApi()) as client:
        monkeypatch.setattr(client._session, "request", fail_to_resolve)
        with pytest.raises(TryLater, match="Temporary failure"):
            await client.request("GET", "/api/v1/nodes")
