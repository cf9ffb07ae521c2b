"""Without DNS every call to AWS is retried, and the endpoint is reported once."""

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import fault_of
from tenure.aws.settings import AwsSettings
from tenure.endpoints import MIN_FAILURES, Endpoints
from tenure.model.errors import TryLater
from tests.support.injected_errors import lose_dns


async def test_unresolved_name_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    lose_dns(monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    observed: list[tuple[str, bool]] = []
    settings = AwsSettings(region="us-west-2", cluster_name="demo")
    clients = AwsClients(settings, endpoints=Endpoints(lambda *found: observed.append(found)))
    try:
        for _ in range(MIN_FAILURES + 1):
            with pytest.raises(TryLater) as caught:
                await clients.call(clients.ec2_without_retries.terminate_instances, InstanceIds=["i-1"])
            assert caught.value.code == EndpointConnectionError.__name__
            assert caught.value.retryable and caught.value.is_unreachable
    finally:
        clients.close()
    assert observed == [("AWS ec2", True)]


@pytest.mark.parametrize(
    "error",
    (
        EndpointConnectionError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        ReadTimeoutError(endpoint_url="https://ec2"),
    ),
    ids=lambda error: type(error).__name__,
)
def test_call_without_response_is_retryable(error: Exception) -> None:
    fault = fault_of(error, "terminate_instances")
    assert type(fault) is TryLater and fault.is_unreachable
