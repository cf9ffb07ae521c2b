"""Fixtures for all tests: the world of real parts, started once per run and only when a test asks for it."""

from collections.abc import AsyncIterator, Iterator
from typing import get_args

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from cli.rights import RBAC, aws_arguments
from sandbox.plan import CRDS, Plan, Temporals
from sandbox.world import Sandbox
from tests.integration.acts import Programme
from tests.integration.product import Product

# How long an example takes, or is made, says how busy the machine is.
settings.register_profile("tenure", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenure")
PLAYS = 900.0
"""Seconds for a test on the real parts; each wait in it has its own end. The first of an act bears all of the act."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last: looks at what the whole run leaves behind")
    config.addinivalue_line("markers", "killable: its worker is killed once when the run has a --kill-seed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-seed", type=int, help="kill the worker of the scenarios once, at a moment this seed gives")
    parser.addoption("--temporal", choices=get_args(Temporals), default="dev", help="which Temporal the world has")
    parser.addoption("--encrypted", action="store_true", help="the worker encrypts what Temporal stores")
    parser.addoption("--times", type=int, default=1, help="play each scenario so often, one time after the other")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the world is a sandbox test; the mark needs no repeating.

    A worker that is at work would meddle with tests that use the world alone, so those come first; what looks at
    the end comes last.
    """
    items.sort(key=_place)
    for item in items:
        if {"world", "cluster", "product"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sandbox)
        if item.get_closest_marker("sandbox") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PLAYS))


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("last") is not None:
        return 2
    return int(bool({"product", "programme"} & set(getattr(item, "fixturenames", ()))))


@pytest.fixture
def plain_log() -> Iterator[None]:
    """All that is logged is heard, whatever the tests before made of it."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> Plan:
    """Of a world whose worker has the rights that ship, with the Temporal that this run asks for."""
    option = request.config.getoption
    return Plan(
        manifests=(CRDS, RBAC),
        aws_arguments=aws_arguments(),
        temporal=option("--temporal"),
        encrypted=option("--encrypted"),
    )


@pytest.fixture(scope="session")
def world(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Temporal, Kubernetes with CRDs and RBAC, AWS with the worker's IAM policy, and nodes; stopped at the run's end.

    Its logs stay in pytest's temporary folder. Tests leave it as they found it.
    """
    with Sandbox(tmp_path_factory.mktemp("world"), plan=plan) as sandbox:
        yield sandbox
        sandbox.check()
        processes = sandbox.processes
    assert [process.name for process in processes if process.running] == []


@pytest_asyncio.fixture(scope="session")
async def product(world: Sandbox) -> AsyncIterator[Product]:
    """Workers under the rights that ship with them; none is at work before a test says so."""
    async with Product(world) as product:
        yield product


@pytest.fixture(scope="session")
def programme(request: pytest.FixtureRequest, product: Product) -> Programme:
    """The scenarios that play together."""
    option = request.config.getoption
    return Programme(request.session.items, product, option("--kill-seed"), option("--times"))
