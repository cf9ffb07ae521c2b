"""One AWS stand-in for all these tests. Each test starts with its initial state; its clock moves only on request."""

from collections.abc import Iterator

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, start_fake_aws, stop_process


@pytest.fixture(scope="session")
def shared_kit() -> Iterator[FakeAwsClient]:
    process, url = start_fake_aws("--clock-scale=0.000001")
    yield FakeAwsClient(url)
    stop_process(process)


@pytest.fixture
def kit(shared_kit: FakeAwsClient) -> FakeAwsClient:
    shared_kit.control.reset()
    return shared_kit
