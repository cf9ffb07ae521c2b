"""Compares objects with open workflows every minute, and repairs differences in both directions.

The visibility store lags, so young objects and workflows are skipped."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import structlog
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client

from activities.disruption import restore_candidate
from activities.ports.core import Claims, Nodes, find_nodeclaim
from activities.runtime import call_for_each
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.controller.cache.availability import early_eviction_until
from tenure.controller.cache.changes import SyncedKinds
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.signals.digests import short_hash
from tenure.controller.signals.notifier import WorkflowNotifier
from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.controller.temporal.client import is_open
from tenure.metrics import WORKFLOWS_MISSING, Meter
from tenure.model.disruption.commands import ClosedCommands
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.policy.disruption.commands import LOST_AFTER
from workflows import ids

log = structlog.get_logger(__name__)

CoordinatorKind = Literal["EC2NodeClass", "NodePool"]
YOUNG: Final = timedelta(seconds=60)
_START_PERIOD: Final = timedelta(seconds=90)
_PAGE: Final = 500
_CLOSED: Final = ("Terminated", "Failed", "TimedOut", "Canceled")
_MAX_CLOSED: Final = 100
"""Commands in one signal."""


async def list_nodeclaim_workflows(client: Client, cluster: str) -> dict[str, datetime]:
    """Running NodeClaim workflows by ID, with their start times."""
    running = "WorkflowType = 'NodeClaim' AND ExecutionStatus = 'Running'"
    query = f"{running} AND WorkflowId STARTS_WITH '{ids.nodeclaims(cluster)}'"
    return {one.execution.workflow_id: one.start_time.ToDatetime(UTC) async for one in _list_executions(client, query)}


async def list_coordinators(client: Client, cluster: str) -> list[str]:
    types = "WorkflowType IN ('NodePool', 'EC2NodeClass')"
    query = f"{types} AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"
    return [one.execution.workflow_id async for one in _list_executions(client, query)]


async def _list_executions(client: Client, query: str) -> AsyncIterator[WorkflowExecutionInfo]:
    """Calls the service directly: the client decodes all search attributes, a second per thousand workflows."""
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, query=query, page_size=_PAGE)
    while True:
        response = await client.workflow_service.list_workflow_executions(request, retry=True)
        for one in response.executions:
            yield one
        request.next_page_token = response.next_page_token
        if not request.next_page_token:
            break


def notify_orphaned_coordinators(
    running: Collection[str], cluster: str, cache: ClusterCache, notifier: WorkflowNotifier, signal_queue: SignalQueue
) -> int:
    """Notify coordinators whose object was deleted while no watch ran. Returns their number."""
    pools = {ids.nodepool(cluster, name) for name in cache.nodepools}
    classes = {ids.nodeclass(cluster, name) for name in cache.nodeclasses}
    orphans = [key for key in running if key not in pools | classes]
    for key in orphans:
        log.warning("notified coordinator of deleted object", workflow=key)
        notifier.notify_coordinator_deleted(key)
    prefixes = (ids.nodepool(cluster, ""), ids.nodeclass(cluster, ""))
    _discard_stale(prefixes, {*pools, *classes, *running}, signal_queue)
    return len(orphans)


async def restart_missing_coordinators(
    client: Client,
    running: Collection[str],
    cache: ClusterCache,
    notifier: WorkflowNotifier,
    known: SyncedKinds,
    now: datetime,
) -> Counter[str]:
    """Start coordinators that do not run, although their objects exist. Returns their number by kind. Visibility lags,
    so Temporal describes each coordinator that is not in `running`."""
    expected = expected_coordinators(notifier.cluster, cache)
    missing = {key for key in expected if key not in running and not await is_open(client, key)}
    for key in missing:
        log.warning("started missing workflow", workflow=key)
    pools = {name for key, (kind, name) in expected.items() if key in missing and kind == "NodePool"}
    classes = {name for key, (kind, name) in expected.items() if key in missing and kind == "EC2NodeClass"}
    notifier.restart_coordinators(pools, classes, known, now)
    return Counter[str](expected[key][0] for key in missing)


class MissingWorkflowCounter:
    """Counts the workflows that resyncs found missing. A session first starts the workflows of all objects that it
    finds, for example after an adoption; those are not counted."""

    def __init__(self, meter: Meter, began: datetime) -> None:
        self._counter, self._began = WORKFLOWS_MISSING.bind(meter), began
        for workflow_type in ("NodeClaim", "NodePool", "EC2NodeClass"):
            self._counter.record(0, workflow=workflow_type)

    def record(self, missing: Mapping[str, int], now: datetime) -> None:
        """`missing`: numbers by workflow type."""
        if now - self._began > _START_PERIOD:
            for workflow_type, number in missing.items():
                self._counter.record(number, workflow=workflow_type)


def expected_coordinators(cluster: str, cache: ClusterCache) -> dict[str, tuple[CoordinatorKind, str]]:
    """Kind and name of each object that needs a coordinator, by workflow ID; EC2NodeClasses first."""
    classes = [name for name, one in sorted(cache.nodeclasses.items()) if not _is_finalized(one)]
    return {
        **{ids.nodeclass(cluster, name): ("EC2NodeClass", name) for name in classes},
        **{ids.nodepool(cluster, name): ("NodePool", name) for name in sorted(cache.nodepools)},
    }


def _is_finalized(node_class: EC2NodeClass) -> bool:
    """Its workflow has completed, although another finalizer keeps the object."""
    metadata = node_class.metadata
    return metadata.is_deleting and labels.NODECLASS_TERMINATION_FINALIZER not in metadata.finalizers


def repair_nodeclaim_workflows(
    running: dict[str, datetime],
    cache: ClusterCache,
    notifier: WorkflowNotifier,
    signal_queue: SignalQueue,
    known: SyncedKinds,
    now: datetime,
) -> tuple[int, int]:
    """The number of started workflows, and of workflows notified that their NodeClaim is gone."""
    claims = {notifier.workflow_id(claim): claim for claim in cache.nodeclaims.values()}
    missing = [claim for key, claim in claims.items() if key not in running and needs_workflow(claim)]
    started = [claim for claim in missing if now - claim.created > YOUNG]
    for claim in started:
        log.warning("started missing NodeClaim workflow", name=claim.name)
        notifier.restart_workflow(claim, known, now)
    orphans = [key for key, since in running.items() if key not in claims and now - since > YOUNG]
    for key in orphans:
        log.warning("notified workflow of deleted NodeClaim", workflow=key)
        notifier.notify_deleted(key)
    _discard_stale((ids.nodeclaims(notifier.cluster),), {*claims, *running}, signal_queue)
    return len(started), len(orphans)


async def notify_closed_commands(client: Client, cluster: str, signal_queue: SignalQueue, now: datetime) -> None:
    """Notify the Cluster workflow of commands that closed without a result, for example terminated ones. A repeated
    signal has no effect."""
    since = (now - LOST_AFTER).isoformat()
    status = f"(ExecutionStatus = 'Running' OR (ExecutionStatus IN {_CLOSED} AND CloseTime > '{since}'))"
    prefix = ids.disruptions(cluster)
    query = f"WorkflowType = 'Disruption' AND WorkflowId STARTS_WITH '{prefix}' AND {status}"
    running, closed = set[str](), dict[str, datetime]()
    async for one in _list_executions(client, query):
        proposal_id = one.execution.workflow_id.removeprefix(prefix)
        if one.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
            running.add(proposal_id)
        else:
            at = one.close_time.ToDatetime(UTC)
            closed[proposal_id] = max(at, closed.get(proposal_id, at))
    latest = sorted(closed.keys() - running, key=lambda one: (closed[one], one))[-_MAX_CLOSED:]
    if latest:
        message = ClosedCommands(closed={one: closed[one] for one in latest})
        digest = short_hash(message.model_dump_json())
        signal_queue.enqueue(Signal(ids.cluster(cluster), "commands_closed", message, digest, topic="closed commands"))


async def restore_abandoned_nodes(client: Client, cache: ClusterCache, claims: Claims, nodes: Nodes) -> None:
    """Return nodes to service whose disruption command is closed, for example terminated. Karpenter does so in each
    pass (reference 4.1)."""
    disrupted = [one for one in cache.nodeclaims.values() if one.disrupted_by and not one.deleting]
    closed = {owner for owner in {one.disrupted_by for one in disrupted} if not await is_open(client, owner)}

    async def restore(claim: NodeClaimFact) -> None:
        for node in cache.nodes_of(claim):
            one = CommandCandidate(node=node.name, claim=claim.name, claim_uid=claim.uid, pool=claim.pool)
            if await restore_candidate(claims, nodes, one, claim.disrupted_by):
                log.warning("restored node of closed disruption command", node=node.name, workflow=claim.disrupted_by)

    await call_for_each([one for one in disrupted if one.disrupted_by in closed], restore)


async def restore_early_evicted_nodes(cache: ClusterCache, claims: Claims, nodes: Nodes, now: datetime) -> None:
    """Return nodes to service whose early eviction is over and that no workflow drains: the LifecyclePolicy may have
    changed to `ignore` since, or AWS did not reclaim the instance."""

    async def restore(claim: NodeClaimFact) -> None:
        live = await find_nodeclaim(claims, claim.name, claim.uid)
        if live is None or live.metadata.is_deleting or live.is_true(labels.DISRUPTION_REASON):
            return
        for one in cache.nodes_of(claim):
            node = await nodes.get(one.name)
            if node and _is_early_eviction_over(node, now) and await nodes.unmark_disrupted(node.name):
                log.warning("restored node after an early eviction", node=node.name)

    undisrupted = [one for one in cache.nodeclaims.values() if not one.deleting and not one.disruption]
    over = [one for one in undisrupted if any(_is_early_eviction_over(node, now) for node in cache.nodes_of(one))]
    await call_for_each(over, restore)


def _is_early_eviction_over(node: NodeFact, now: datetime) -> bool:
    was_evicted = node.being_disrupted and labels.EARLY_EVICTED_AT in node.annotations
    return was_evicted and early_eviction_until([node], now) is None


def needs_workflow(claim: NodeClaimFact) -> bool:
    """False for a deleting NodeClaim without Tenure's finalizer: its workflow has completed."""
    return not claim.deleting or labels.TERMINATION_FINALIZER in claim.finalizers


def _discard_stale(prefixes: tuple[str, ...], known: Set[str], signal_queue: SignalQueue) -> None:
    """Forget signals to workflows that have neither an object nor a run."""
    for key in [key for key in signal_queue.sent if key.startswith(prefixes) and key not in known]:
        signal_queue.discard(key)
