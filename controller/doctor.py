"""Checks of Temporal as the worker needs it: the namespace, how long it keeps histories, search attributes, workers."""

from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from model.findings import Finding, advice, ok, problem, unknown
from workflows import attributes, ids

AREA: Final = "temporal"
_SHORT: Final = timedelta(days=3)
"""`tenure why` tells of nodes that are gone for as long as their histories are kept."""


async def check_temporal(temporal: Client, cluster: str) -> list[Finding]:
    """Each check by itself: one that the service refuses hides no other."""
    found = []
    for check in (_namespace, _attributes, _workers):
        try:
            found += await check(temporal, cluster)
        except RPCError as error:
            todo = f"let these credentials read the namespace {temporal.namespace}"
            found.append(unknown(AREA, check.__name__.strip("_"), error.message, todo))
    return found


async def _namespace(temporal: Client, _: str) -> list[Finding]:
    answer = await temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=temporal.namespace))
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    subject, said = f"namespace {temporal.namespace}", f"histories are kept for {_days(kept)}"
    if kept < _SHORT:
        todo = f"temporal operator namespace update --retention 30d {temporal.namespace}"
        return [advice(AREA, subject, f"{said}: a node's story is lost soon after it is gone", todo)]
    return [ok(AREA, subject, said)]


async def _attributes(temporal: Client, _: str) -> list[Finding]:
    answer = await temporal.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=temporal.namespace)
    )
    missing = [
        f"{name} ({kind})" for name, kind in attributes.ALL.items() if answer.custom_attributes.get(name) != _kind(kind)
    ]
    if missing:
        todo = "start the worker once with rights to make them, or `temporal operator search-attribute create`"
        return [problem(AREA, "search attributes", f"missing or of another type: {', '.join(missing)}", todo)]
    return [ok(AREA, "search attributes", f"all {len(attributes.ALL)} are there")]


async def _workers(temporal: Client, cluster: str) -> list[Finding]:
    queue = ids.task_queue(cluster)
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await temporal.workflow_service.describe_task_queue(request)
    names = sorted({one.identity for one in answer.pollers})
    if not names:
        return [advice(AREA, f"task queue {queue}", "no worker takes work from it", "start the worker")]
    return [ok(AREA, f"task queue {queue}", f"{len(names)} at work: {', '.join(names)}")]


def _kind(name: str) -> int:
    return int(IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{name.upper()}"))


def _days(length: timedelta) -> str:
    days = length / timedelta(days=1)
    return "1 day" if days == 1 else f"{days:g} days"
