"""`tenure events`: events, nodes, policies and actions, read from one list of workflows."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.capture import CaptureFixture
from temporalio.api.common.v1 import Memo
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client, WorkflowExecution
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from tenure.cli import main as cli_main
from tenure.cli.nodes.events import (
    NodeEventReader,
    as_json,
    describe_outcome,
    events_table,
    format_message_counts,
    select_rows,
)
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.temporal_client import Connection
from tenure.model.interruption.records import MEMO, EventRecord, InterruptionState, MessageCounts
from tests.unit.cli.nodes.test_workflows import execution
from workflows import ids, search_attributes

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = NOW - timedelta(hours=24)


def record(**fields: Any) -> EventRecord:
    defaults = {
        "kind": "spotInterruption",
        "received_at": NOW,
        "action": "drain",
        "done": "the node is drained",
        "since": NOW,
    }
    return EventRecord.model_validate({**defaults, **fields})


class FakeTemporal:
    """A fake Temporal client that lists workflows and queries the Interruption workflow."""

    def __init__(self) -> None:
        self.found: list[WorkflowExecution] = []
        self.interruption: InterruptionState | None = None
        """None: no worker responds."""
        self.queries: list[str] = []
        self.fault: RPCError | None = None
        self.data_converter = pydantic_data_converter

    async def count_workflows(self, query: str) -> SimpleNamespace:
        return SimpleNamespace(count=1)

    async def add_nodeclaim(
        self, name: str, *records: EventRecord, status: Status = Status.RUNNING, after: int = 0
    ) -> None:
        begun = NOW - timedelta(hours=2) + timedelta(seconds=after)
        memo = Memo()
        if records:
            [payload] = await pydantic_data_converter.encode([[one.model_dump(mode="json") for one in records]])
            memo.fields[MEMO].CopyFrom(payload)
        attributes = {
            search_attributes.PHASE: "Ready",
            search_attributes.NODE_POOL: "web",
            search_attributes.NODE_NAME: f"node-{name}",
            search_attributes.INSTANCE_ID: f"i-{name}",
        }
        pairs = [SearchAttributePair(key, value) for key, value in attributes.items()]
        self.found.append(
            replace(
                execution(name, status, after=after),
                start_time=begun,
                close_time=None if status is Status.RUNNING else NOW,
                raw_info=WorkflowExecutionInfo(memo=memo),
                typed_search_attributes=TypedSearchAttributes(pairs),
            )
        )

    def list_workflows(self, query: str, page_size: int) -> AsyncIterator[WorkflowExecution]:
        self.queries.append(query)

        async def each() -> AsyncIterator[WorkflowExecution]:
            if self.fault:
                raise self.fault
            for one in self.found:
                yield one

        return each()

    def get_workflow_handle(self, workflow_id: str) -> Any:
        assert workflow_id == ids.interruption("demo")

        async def query(name: str, **_: Any) -> InterruptionState:
            if self.interruption is None:
                raise RPCError("no worker", RPCStatusCode.DEADLINE_EXCEEDED, b"")
            return self.interruption

        return SimpleNamespace(query=query)

    def make_reader(self) -> NodeEventReader:
        return NodeEventReader(cast(Client, self), "demo")


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> FakeTemporal:
    """A fake client that the command connects to."""
    one = FakeTemporal()

    async def client(_: Connection) -> FakeTemporal:
        return one

    monkeypatch.setattr(Connection, "connect", client)
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    monkeypatch.setenv("COLUMNS", "240")
    return one


async def test_nodes_with_events_are_listed_with_one_query(temporal: FakeTemporal) -> None:
    await temporal.add_nodeclaim("quiet")
    await temporal.add_nodeclaim("one", record())
    await temporal.add_nodeclaim("gone", record(kind="instanceTerminating"), status=Status.COMPLETED)
    node_events = await temporal.make_reader().list_node_events(DAY)
    assert [(one.nodeclaim.name, one.records[0].kind) for one in node_events] == [
        ("one", "spotInterruption"),
        ("gone", "instanceTerminating"),
    ]
    [query] = temporal.queries
    assert "ExecutionStatus = 'Running' OR CloseTime >= " in query and DAY.isoformat() in query


async def test_five_hundred_nodes_need_one_query(temporal: FakeTemporal) -> None:
    for number in range(500):
        await temporal.add_nodeclaim(f"n{number}", record())
    node_events = await temporal.make_reader().list_node_events(DAY)
    assert len(node_events) == 500 and len(temporal.queries) == 1


async def test_continued_workflow_is_listed_once(temporal: FakeTemporal) -> None:
    await temporal.add_nodeclaim("one", record(done="waits"), status=Status.CONTINUED_AS_NEW)
    await temporal.add_nodeclaim("one", record(done="the node is drained"), after=60)
    [node_events] = await temporal.make_reader().list_node_events(DAY)
    assert [one.done for one in node_events.records] == ["the node is drained"] and node_events.nodeclaim.open


async def test_unreadable_memo_does_not_hide_other_nodes(temporal: FakeTemporal) -> None:
    await temporal.add_nodeclaim("new", record())
    newer = await pydantic_data_converter.encode([[{"kind": "somethingNew"}]])
    temporal.found[0].raw_info.memo.fields[MEMO].CopyFrom(newer[0])
    await temporal.add_nodeclaim("one", record())
    assert [len(one.records) for one in await temporal.make_reader().list_node_events(DAY)] == [0, 1]


async def test_message_counts_come_from_the_interruption_workflow(temporal: FakeTemporal) -> None:
    counts = MessageCounts(since=NOW, counts={"received": 15, "deleted": 14, "foreign": 3, "repeated": 4})
    temporal.interruption = InterruptionState(cluster="demo", queue="demo", message_counts=counts)
    assert await temporal.make_reader().read_message_counts() == counts


async def test_without_queue_or_worker_there_are_no_counts(temporal: FakeTemporal) -> None:
    assert await temporal.make_reader().read_message_counts() is None
    temporal.interruption = InterruptionState(cluster="demo", message_counts=MessageCounts(since=NOW))
    assert await temporal.make_reader().read_message_counts() is None


async def test_fault_of_the_list_is_raised(temporal: FakeTemporal) -> None:
    temporal.fault = RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
    with pytest.raises(RPCError, match="away"):
        await temporal.make_reader().list_node_events(DAY)


# --- output ---


NODECLAIM = NodeClaimSummary(
    workflow_id="w", name="one", phase="Ready", pool="web", instance_id="i-1", node_name="node-one"
)
DELETED = replace(NODECLAIM, status="COMPLETED", phase="Gone", since=NOW)


async def row_names(cluster: FakeTemporal) -> list[str]:
    found = select_rows(await cluster.make_reader().list_node_events(DAY), DAY)
    return [nodeclaim.name for nodeclaim, _ in found]


async def test_old_events_are_hidden_unless_pending(temporal: FakeTemporal) -> None:
    old = NOW - timedelta(days=3)
    await temporal.add_nodeclaim("old", record(received_at=old))
    await temporal.add_nodeclaim("waiting", record(received_at=old, waits=True))
    await temporal.add_nodeclaim("waited", record(received_at=old, waits=True), status=Status.COMPLETED)
    await temporal.add_nodeclaim("new", record())
    assert await row_names(temporal) == ["waiting", "new"]


def test_outcome_mentions_deleted_node() -> None:
    waits = record(done="waits for approval", waits=True, received_at=NOW - timedelta(hours=1))
    assert describe_outcome(NODECLAIM, record()) == "the node is drained"
    assert describe_outcome(NODECLAIM, waits) == f"waits for approval (since {NOW:%Y-%m-%d %H:%M:%S})"
    assert describe_outcome(DELETED, record()).startswith("the node is drained; node deleted at ")
    assert describe_outcome(DELETED, waits).startswith("pending: waits for approval; node deleted at ")


def test_row_has_event_node_policy_and_outcome() -> None:
    starts = NOW + timedelta(days=2)
    output = str(
        events_table(
            [(NODECLAIM, record(kind="scheduledChange", code="instance-stop", starts=starts, policy="databases"))]
        )
    )
    for part in ("scheduledChange instance-stop", "one", "i-1", "web", "databases: drain", "the node is drained"):
        assert part in output
    assert f"{starts:%Y-%m-%d %H:%M:%S}" in output
    assert "none: drain" in str(events_table([(NODECLAIM, record())]))


def test_dropped_messages_are_summarized() -> None:
    counts = {"received": 20, "deleted": 18, "repeated": 5, "foreign": 4, "malformed": 1, "unknown": 2}
    assert (
        "20 received, 6 sent to nodes, 5 duplicates, 4 for instances without a NodeClaim, 2 of an unknown kind, "
        "1 malformed" in format_message_counts(MessageCounts(since=NOW, counts=counts))
    )
    assert "run `tenure doctor`" in format_message_counts(None)


def test_json_has_all_fields() -> None:
    [event] = as_json([(NODECLAIM, record(policy="databases"))], None)["events"]
    assert (event["nodeClaim"], event["node"], event["instance"], event["nodePool"]) == (
        "one",
        "node-one",
        "i-1",
        "web",
    )
    assert (event["open"], event["kind"], event["policy"], event["done"]) == (
        True,
        "spotInterruption",
        "databases",
        "the node is drained",
    )


# --- the command ---


@pytest.mark.parametrize("name", ["one", "node-one", "i-one"])
async def test_node_is_found_by_each_of_its_names(
    temporal: FakeTemporal, capsys: CaptureFixture[str], name: str
) -> None:
    await temporal.add_nodeclaim("one", record())
    await temporal.add_nodeclaim("two", record())
    assert await run("events", name, "-o", "json") == 0
    assert [one["nodeClaim"] for one in json.loads(capsys.readouterr().out)["events"]] == ["one"]


async def test_known_page_of_the_node_is_printed(temporal: FakeTemporal, capsys: CaptureFixture[str]) -> None:
    await temporal.add_nodeclaim("one", record())
    assert await run("events", "one", "--temporal-ui-url", "https://ui") == 0
    url = ids.page_url("https://ui", "default", ids.nodeclaim("demo", "one", "0123456789"))
    assert f"one  {url}" in capsys.readouterr().out.splitlines()


async def test_nodes_are_filtered_by_nodepool(temporal: FakeTemporal, capsys: CaptureFixture[str]) -> None:
    await temporal.add_nodeclaim("one", record())
    for pool, count in (("web", 1), ("other", 0)):
        assert await run("events", "--nodepool", pool, "-o", "json") == 0
        assert len(json.loads(capsys.readouterr().out)["events"]) == count
    assert await run("events", "--nodepool", "other") == 0
    assert capsys.readouterr().out.startswith("No AWS events for the nodes of other since ")
    temporal.found.clear()
    assert await run("events") == 0
    assert capsys.readouterr().out.startswith("No AWS events for any node since ")


async def test_node_without_events_is_ok_and_unknown_name_is_an_error(
    temporal: FakeTemporal, capsys: CaptureFixture[str]
) -> None:
    await temporal.add_nodeclaim("quiet")
    assert await run("events", "quiet") == 0
    assert "No AWS events for quiet" in capsys.readouterr().out
    assert await run("events", "nobody") == 2
    assert "events nobody: no NodeClaim, Node or instance of this name" in capsys.readouterr().err


async def run(*arguments: str) -> int:
    """Run in a thread, because the command has its own event loop."""
    return await asyncio.to_thread(cli_main.main, list(arguments))
