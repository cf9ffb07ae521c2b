"""Fixtures with real components. The `conftest.py` of each folder that needs them imports them from here."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from cli.rights import RBAC, aws_arguments
from sandbox.plan import CRDS, Plan
from sandbox.world import Sandbox
from tests.support.product.acts import Programme
from tests.support.product.product import Product


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
