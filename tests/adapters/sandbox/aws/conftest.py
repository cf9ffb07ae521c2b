"""One stand-in for all these tests, put back to its seed before each; its clock moves only when a test moves it."""

from collections.abc import Iterator

import pytest

from tests.support.sandbox.aws.kit import StandInKit, start, stop


@pytest.fixture(scope="session")
def shared_kit() -> Iterator[StandInKit]:
    process, url = start("--clock-scale=0.000001")
    yield StandInKit(url)
    stop(process)


@pytest.fixture
def kit(shared_kit: StandInKit) -> StandInKit:
    shared_kit.control.reset()
    return shared_kit
