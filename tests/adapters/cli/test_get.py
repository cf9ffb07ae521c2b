"""`tenure get`: lists nodes from visibility, with filters that the server applies."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from _pytest.capture import CaptureFixture

from benchmarks.cli_latency import start, state_of
from tenure.cli.completion import read_names
from tenure.cli.main import main
from tenure.cli.nodes.get import build_condition, read
from tenure.cli.nodes.workflows import NodeClaimSummary, list_stopped_workflows
from tenure.cli.temporal_client import Connection
from tenure.model.nodeclaim.state import NodeClaimState
from tests.support.cli.temporal_server import running_workflows, temporal_server
from tests.support.product.eventually import wait_until
from workflows import ids

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("temporal"))


def states(cluster: str, number: int = 10) -> Sequence[NodeClaimState]:
    """Of ten nodes, seven are Ready; one each is in Launch, Initialization and Drain. The last one is overdue."""
    return [state_of(one, NOW, cluster=cluster) for one in range(number)]


async def list_nodes(connection: Connection, names: Sequence[str], query: str) -> list[NodeClaimSummary]:
    return await read(await connection.connect(), connection.cluster, names, query)


async def test_nodes_are_listed_with_their_search_attributes(address: str) -> None:
    async with running_workflows(address, states("whole")) as connection:
        found = {nodeclaim.name: nodeclaim for nodeclaim in await list_nodes(connection, (), "")}
    assert len(found) == 10
    node = found["web-00009"]
    assert (node.phase, node.overdue, node.pool, node.zone) == ("Drain", True, "pool-4", "us-west-2a")
    assert (node.instance_type, node.capacity_type, node.price) == ("m6i.2xlarge", "spot", 0.384)
    assert node.blocked_by == "PodDisruptionBudget"
    assert node.deadline == node.since + timedelta(minutes=30) if node.since else False
    assert found["web-00007"].price == 0.0, "a NodeClaim without instance has no price"


async def test_server_filters_by_pool_phase_and_overdue(address: str) -> None:
    async with running_workflows(address, states("narrow")) as connection:

        async def names(pool: str = "", phase: str = "", *, overdue: bool = False) -> list[str]:
            found = await list_nodes(connection, (), build_condition(pool, phase, overdue=overdue))
            return [nodeclaim.name for nodeclaim in found]

        assert await names(pool="pool-1") == ["web-00001", "web-00006"]
        assert await names(phase="Launch") == ["web-00007"]
        assert await names(overdue=True) == ["web-00009"]
        assert await names(pool="pool-1", overdue=True) == []


async def test_node_is_found_by_nodeclaim_node_or_instance_name(address: str) -> None:
    async with running_workflows(address, states("named")) as connection:
        node = state_of(3, NOW).node_name
        for name in ("web-00003", node, f"i-{3:017x}"):
            assert [nodeclaim.name for nodeclaim in await list_nodes(connection, [name], "")] == ["web-00003"]
        assert await list_nodes(connection, ["web", "' OR WorkflowId != '"], "") == []


async def test_other_clusters_of_the_namespace_are_not_listed(address: str) -> None:
    async with running_workflows(address, states("one", 2)) as one, running_workflows(address, states("one-more", 3)):
        assert len(await list_nodes(one, (), "")) == 2


async def test_terminated_workflow_is_listed_until_it_runs_again(address: str, capsys: CaptureFixture[str]) -> None:
    cluster_states = states("broken", 2)
    async with running_workflows(address, cluster_states) as connection:
        client, cluster = await connection.connect(), connection.cluster
        stopped_id = ids.nodeclaim(cluster, "web-00001", cluster_states[1].identity.uid)
        await client.get_workflow_handle(stopped_id).terminate("a person did it")

        async def assert_stopped(*expected: str) -> None:
            assert [one.workflow_id for one in await list_stopped_workflows(client, cluster)] == [*expected]

        await wait_until(lambda: assert_stopped(stopped_id))
        arguments = ["get", "web-00001", "--temporal-address", address, "--cluster-name", cluster]
        assert await asyncio.to_thread(main, arguments) == 0
        assert f"workflow {stopped_id}: Terminated" in capsys.readouterr().out
        await start(client, cluster_states[1:])
        await assert_stopped()


async def test_other_formats_and_unknown_name(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path))
    async with running_workflows(address, states("formats", 2)) as connection:
        cluster = connection.cluster

        async def run(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(main, [*arguments, "--temporal-address", address, "--cluster-name", cluster])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        code, output = await run("get", "-o", "json", "--nodepool", "other")
        assert code == 0
        assert json.loads(output) == {"nodes": [], "pricePerHour": 0, "stoppedWorkflows": []}
        _, output = await run("get", "-o", "yaml")
        names = [one["nodeClaim"] for one in yaml.safe_load(output)["nodes"]]
        assert await run("get", "-o", "name") == (0, "".join(f"nodeclaim/{name}\n" for name in names))
        code, output = await run("get", "nosuch-1")
        assert code == 2 and "tenure why NAME" in output and len(output.splitlines()) == 1
        assert (await run("names"))[0] == 0
        assert set(names) <= set(read_names(["--cluster-name", cluster])["nodes"])
