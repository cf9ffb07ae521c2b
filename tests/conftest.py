"""Fixtures for all tests: the world of real parts, started once per run and only when a test asks for it."""

from collections.abc import Iterator

import pytest

from cli.rights import RBAC, aws_arguments
from sandbox.plan import CRDS, Plan
from sandbox.world import Sandbox


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the world is a sandbox test; the mark needs no repeating."""
    for item in items:
        if {"world", "cluster"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Temporal, Kubernetes with CRDs and RBAC, AWS with the worker's IAM policy, and nodes; stopped at the run's end.

    Its logs stay in pytest's temporary folder. Tests leave it as they found it.
    """
    plan = Plan(manifests=(CRDS, RBAC), aws_arguments=aws_arguments())
    with Sandbox(tmp_path_factory.mktemp("world"), plan=plan) as sandbox:
        yield sandbox
        sandbox.check()
        processes = sandbox.processes
    assert [process.name for process in processes if process.running] == []
