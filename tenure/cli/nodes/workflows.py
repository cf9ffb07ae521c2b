"""The NodeClaim workflows of a cluster: running ones by their search attributes, ended ones by their result.

Also the long-lived workflows of all types that were terminated.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, TypeVar

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from tenure.controller.temporal.queries import query_or_none
from tenure.model.base import Message
from tenure.model.blockers import Verdict, format_verdict
from tenure.model.nodeclaim.history import NodeClaimOutcome, Phase
from workflows import ids, search_attributes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of Kubernetes and EC2. No other text may become part of a query."""
MAX_QUERIES: Final = 50
"""Number of workflows that are queried at the same time for state that visibility lacks."""
QUERY_TIMEOUT: Final = timedelta(seconds=2)
# The names of the workflows that ignore cancellation; importing them takes long.
LONG_LIVED: Final = (
    "Cluster",
    "ClusterWatch",
    "EC2NodeClass",
    "GarbageCollector",
    "Interruption",
    "NodeClaim",
    "NodePool",
    "Provisioning",
)
STOPPED: Final = {
    WorkflowExecutionStatus.CANCELED: "Canceled",
    WorkflowExecutionStatus.FAILED: "Failed",
    WorkflowExecutionStatus.TERMINATED: "Terminated",
    WorkflowExecutionStatus.TIMED_OUT: "TimedOut",
}
"""Endings without a decision of the workflow."""
RESTARTED: Final = "a running worker starts it again within two minutes"

S = TypeVar("S", bound=Message)
PageUrl = Callable[[str], str]
"""The page of a workflow in the Temporal UI; empty if the UI's address is unknown."""


def no_page_url(workflow_id: str) -> str:
    return ""


@dataclass(frozen=True)
class NodeClaimSummary:
    """One NodeClaim's workflow as visibility shows it."""

    workflow_id: str
    name: str
    """The NodeClaim's."""
    phase: str
    pool: str = ""
    since: datetime | None = None
    deadline: datetime | None = None
    overdue: bool = False
    blocked_by: str = ""
    """The code of the blocker, from `tenure/model/blockers.py`."""
    sentence: str = ""
    """Of the verdict, if the workflow responded."""
    paused: bool = False
    """By its own pause, not by one of its NodePool or of the cluster."""
    instance_type: str = ""
    instance_id: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float = 0.0
    """US dollars per hour at launch; 0 where unknown."""
    node_name: str = ""
    status: str = "RUNNING"
    events: int = 0
    """History events of closed runs."""
    url: str = ""
    """Its page in the Temporal UI, if known."""

    @property
    def open(self) -> bool:
        return self.status == "RUNNING"

    @property
    def blocker(self) -> str:
        """Code and sentence, or the code if the sentence is unknown."""
        return format_verdict(self.blocked_by, self.sentence)

    def is_called(self, name: str) -> bool:
        """By its NodeClaim, its Node or its instance."""
        return name in (self.name, self.node_name, self.instance_id)


class NodeClaimVisibility:
    """The NodeClaim workflows of one cluster."""

    def __init__(self, client: Client, cluster: str, page_url: PageUrl = no_page_url) -> None:
        self._client, self._cluster, self._page_url = client, cluster, page_url

    async def list_all(self, condition: str = "") -> list[NodeClaimSummary]:
        """Oldest first. Runs of one workflow are merged; see `merge_runs`."""
        return self.merge_runs(await self.list_runs(condition))

    def merge_runs(self, executions: Sequence[WorkflowExecution]) -> list[NodeClaimSummary]:
        return [replace(one, url=self._page_url(one.workflow_id)) for one in merge_runs(executions)]

    async def list_runs(self, condition: str = "") -> list[WorkflowExecution]:
        """Every run, oldest first."""
        prefix = ids.nodeclaim(self._cluster, "", "").rstrip("/") + "/"
        parts = ("WorkflowType = 'NodeClaim'", f"WorkflowId STARTS_WITH '{prefix}'", condition)
        query = " AND ".join(filter(None, parts))
        found = [execution async for execution in self._client.list_workflows(query, page_size=1000)]
        return sorted(found, key=lambda execution: execution.start_time)

    async def list_running(self) -> list[NodeClaimSummary]:
        return await self.list_all("ExecutionStatus = 'Running'")

    async def find_running(self, name: str) -> NodeClaimSummary | None:
        """The newest running one of that name."""
        found = await self.find_by_names([name], "ExecutionStatus = 'Running'")
        return found[-1] if found else None

    async def find_by_names(self, names: Iterable[str], condition: str = "") -> list[NodeClaimSummary]:
        """By NodeClaim, Node or instance; Temporal filters."""
        conditions = [self._name_condition(name) for name in names if _NAME.fullmatch(name)]
        if not conditions:
            return []
        return await self.list_all(" AND ".join(filter(None, (f"({' OR '.join(conditions)})", condition))))

    def _name_condition(self, name: str) -> str:
        of_claim = f"WorkflowId STARTS_WITH '{ids.nodeclaim(self._cluster, name, '').rstrip('/')}/'"
        node, instance = search_attributes.NODE_NAME.name, search_attributes.INSTANCE_ID.name
        return f"{of_claim} OR {node} = '{name}' OR {instance} = '{name}'"

    async def fetch_outcome(self, nodeclaim: NodeClaimSummary) -> NodeClaimOutcome:
        """Waits for a running workflow. Raises `WorkflowFailureError` for a failed one."""
        handle = self._client.get_workflow_handle(nodeclaim.workflow_id, result_type=NodeClaimOutcome)
        outcome: NodeClaimOutcome = await handle.result()
        return outcome


def merge_runs(executions: Sequence[WorkflowExecution]) -> list[NodeClaimSummary]:
    """One per workflow ID: the last run's attributes and the sum of all runs' events."""
    nodeclaims: dict[str, NodeClaimSummary] = {}
    for execution in executions:
        before = nodeclaims.get(execution.id)
        nodeclaims[execution.id] = summarize_run(execution, events_before=before.events if before else 0)
    return list(nodeclaims.values())


def summarize_run(execution: WorkflowExecution, *, events_before: int = 0) -> NodeClaimSummary:
    found = execution.typed_search_attributes
    status = execution.status or WorkflowExecutionStatus.RUNNING
    summary = summarize_attributes(
        execution.id, found.get, status=status.name, events=events_before + (execution.history_length or 0)
    )
    if status is WorkflowExecutionStatus.COMPLETED:
        return replace(summary, phase=Phase.DELETED.value, since=execution.close_time)
    return replace(
        summary,
        phase=found.get(search_attributes.PHASE) or "",
        since=found.get(search_attributes.PHASE_SINCE),
        deadline=found.get(search_attributes.DEADLINE),
        overdue=bool(found.get(search_attributes.OVERDUE)),
        blocked_by=found.get(search_attributes.BLOCKED_BY) or "",
        paused=bool(found.get(search_attributes.PAUSED)),
    )


def summarize_attributes(
    workflow_id: str, get: Callable[[SearchAttributeKey[Any]], Any], **more: Any
) -> NodeClaimSummary:
    """The attributes that a closed workflow keeps."""
    return NodeClaimSummary(
        workflow_id=workflow_id,
        name=nodeclaim_name(workflow_id),
        phase=Phase.DELETED.value,
        pool=(get(search_attributes.NODE_POOL) or "").removeprefix("-"),
        instance_type=get(search_attributes.INSTANCE_TYPE) or "",
        instance_id=get(search_attributes.INSTANCE_ID) or "",
        zone=get(search_attributes.ZONE) or "",
        capacity_type=get(search_attributes.CAPACITY_TYPE) or "",
        price=get(search_attributes.PRICE) or 0.0,
        node_name=get(search_attributes.NODE_NAME) or "",
        **more,
    )


@dataclass(frozen=True)
class StoppedWorkflow:
    """A long-lived workflow whose latest run ended without its decision."""

    workflow_id: str
    status: str
    ended_at: datetime | None


async def list_stopped_workflows(client: Client, cluster: str) -> list[StoppedWorkflow]:
    """Long-lived workflows whose latest run was terminated or failed, until a worker starts them again."""
    ended = f"WorkflowType IN {LONG_LIVED} AND ExecutionStatus IN {tuple(STOPPED.values())}"
    query = f"{ended} AND WorkflowId STARTS_WITH '{cluster}/'"
    keys = sorted({one.id async for one in client.list_workflows(query, page_size=1000)})[:MAX_QUERIES]
    found = await asyncio.gather(*(_read_stopped_workflow(client, key) for key in keys))
    return [one for one in found if one]


async def _read_stopped_workflow(client: Client, workflow_id: str) -> StoppedWorkflow | None:
    """None if a later run runs or completed, or if the server does not respond."""
    try:
        latest = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=QUERY_TIMEOUT)
    except RPCError:
        return None
    if latest.status not in STOPPED:
        return None
    return StoppedWorkflow(workflow_id, STOPPED[latest.status], latest.close_time)


async def list_commands(client: Client, cluster: str) -> list[WorkflowExecution]:
    """Disruption commands that are being executed."""
    query = f"WorkflowType = 'Disruption' AND {running_condition(ids.disruption(cluster, ''))}"
    return [one async for one in client.list_workflows(query, page_size=1000)]


def running_condition(prefix: str) -> str:
    """Of a visibility query for the running workflows whose ID has this prefix."""
    return f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"


async def query_states(
    client: Client, workflow_ids: Sequence[str], state_type: type[S], query: str = "state"
) -> dict[str, S]:
    """By workflow ID. Those without a response are omitted."""
    batches = (workflow_ids[start : start + MAX_QUERIES] for start in range(0, len(workflow_ids), MAX_QUERIES))
    found = [
        await asyncio.gather(*(query_or_none(client, one, query, state_type, QUERY_TIMEOUT) for one in batch))
        for batch in batches
    ]
    return {one: state for one, state in zip(workflow_ids, chain.from_iterable(found), strict=True) if state}


def with_verdict(nodeclaim: NodeClaimSummary, verdict: Verdict | None) -> NodeClaimSummary:
    """With code and sentence of the verdict; unchanged if the workflow did not respond."""
    return replace(nodeclaim, blocked_by=verdict.code, sentence=verdict.sentence) if verdict else nodeclaim


def nodeclaim_name(workflow_id: str) -> str:
    """The name in `<cluster>/nodeclaim/<name>/<uid>`."""
    return workflow_id.rsplit("/", 2)[-2]


def as_json(nodeclaim: NodeClaimSummary) -> dict[str, Any]:
    return {
        "nodeClaim": nodeclaim.name,
        "node": nodeclaim.node_name,
        "instance": nodeclaim.instance_id,
        "nodePool": nodeclaim.pool,
        "phase": nodeclaim.phase,
        "since": format_iso(nodeclaim.since),
        "deadline": format_iso(nodeclaim.deadline),
        "overdue": nodeclaim.overdue,
        "blockedBy": nodeclaim.blocker,
        "code": nodeclaim.blocked_by,
        "sentence": nodeclaim.sentence,
        "paused": nodeclaim.paused,
        "instanceType": nodeclaim.instance_type,
        "zone": nodeclaim.zone,
        "capacityType": nodeclaim.capacity_type,
        "pricePerHour": nodeclaim.price or None,
        "workflow": nodeclaim.workflow_id,
        "workflowUrl": nodeclaim.url or None,
        "status": nodeclaim.status,
    }


def format_links(nodeclaims: Iterable[NodeClaimSummary]) -> list[str]:
    """One part of the output with the pages in the Temporal UI, if known. A table would wrap them."""
    links = {one.name: one.url for one in nodeclaims if one.url}
    return ["\n".join(f"{name}  {url}" for name, url in links.items())] if links else []


def format_iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def format_since(nodeclaim: NodeClaimSummary, now: datetime) -> str:
    return f"{format_span(now - nodeclaim.since)} ago" if nodeclaim.since else "-"


def format_until(nodeclaim: NodeClaimSummary, now: datetime) -> str:
    if nodeclaim.deadline is None:
        return "-"
    left = nodeclaim.deadline - now
    return f"in {format_span(left)}" if left > timedelta(0) else f"{format_span(-left)} late"


def format_span(length: timedelta) -> str:
    """`7s`, `4m05s`, `2h03m`."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
