"""One stand-in for all these tests, put back to its seed before each; its clock moves only when a test moves it."""

from collections.abc import Iterator

import pytest

from tests.sandbox.aws.kit import StandInKit, start, stop


@pytest.fixture(scope="session")
def standin_url() -> Iterator[str]:
    process, url = start("--clock-scale=0.000001")
    yield url
    stop(process)


@pytest.fixture
def kit(standin_url: str) -> Iterator[StandInKit]:
    made = StandInKit(standin_url)
    made.control.reset()
    yield made
