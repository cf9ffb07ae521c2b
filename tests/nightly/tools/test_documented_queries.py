"""Temporal accepts the visibility queries of the documentation, and they select the right nodes."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from temporalio.client import Client

from benchmarks.cli_latency import state_of
from tests.support.cli.temporal_server import running_workflows, temporal_server
from tests.support.paths import ROOT
from tools.docs.reference import QUERIES

PAGE = ROOT / "docs" / "concepts" / "temporal-ui.md"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("temporal"))


async def test_documented_queries_select_their_nodes(address: str) -> None:
    """Of ten nodes, seven are Ready; one each is in Launch, Initialization and Drain. The last one is overdue."""
    now = datetime.now(UTC)
    async with running_workflows(address, [state_of(one, now, cluster="queries") for one in range(10)]):
        client = await Client.connect(address)
        found = {what: (await client.count_workflows(query)).count for what, query in QUERIES}
    assert found == {
        "overdue nodes": 1,
        "draining nodes": 1,
        "nodes of a NodePool": 0,
        "starting nodes": 2,
        "items that need attention": 1,
        "paused items": 0,
        "the node of an instance, also after its deletion": 0,
    }


def test_page_shows_the_tested_queries() -> None:
    page = PAGE.read_text()
    for what in ("overdue nodes", "draining nodes", "nodes of a NodePool"):
        assert f"`{dict(QUERIES)[what]}`" in page
