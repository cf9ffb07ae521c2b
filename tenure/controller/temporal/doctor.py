"""`tenure doctor` for Temporal: version, capabilities, limits, encryption, namespace, search attributes and workers."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.commands import READ_LOGS, START_WORKER, deploy_stack, set_in_chart
from tenure.clock import utc_now
from tenure.controller.temporal.errors import describe_namespace_creation, lacks_namespace
from tenure.controller.temporal.namespace import KINDS, describe_attribute_creation, has_attribute
from tenure.controller.temporal.pollers import list_pollers
from tenure.controller.temporal.queries import query_invalid_objects, query_or_none
from tenure.controller.temporal.worker_versioning import Builds, read_builds
from tenure.model.base import format_number
from tenure.model.errors import BadInput, Finding, InvalidObject, Subject
from tenure.model.interruption.records import InterruptionState
from workflows import ids, search_attributes

AREA: Final = "temporal"
MIN_VERSION: Final = (1, 28)
"""The first version with Worker Versioning, which the chart enables by default."""
TESTED_VERSIONS: Final = ("1.31.2", "1.32.0")
_MIB: Final = 2**20
MIN_BLOB_BYTES: Final = 2 * _MIB
"""Temporal's default limit of a payload; plans of large clusters come near."""
_SEPARATE: Final = (
    "use a separate namespace for this cluster: temporal operator namespace create --namespace NAME --retention 30d, "
    f"then {set_in_chart('settings.TEMPORAL_NAMESPACE=NAME')}"
)
_NEAR: Final = ("127.", "localhost", "[::1]")


async def check_service(temporal: Client, build: str) -> list[Finding]:
    """`build`: the setting TEMPORAL_WORKER_BUILD_ID. Raises RPCError where the namespace cannot be read."""
    system = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    response = await temporal.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=temporal.namespace)
    )
    info = response.namespace_info
    config = temporal.service_client.config
    return [
        *_check_version(system.server_version, build),
        *_check_updates(temporal.namespace, info.HasField("capabilities"), updates=info.capabilities.sync_update),
        *_check_limits(temporal.namespace, info.limits.blob_size_limit_error),
        *_check_encryption(config.target_host, secure=bool(config.tls)),
    ]


def _check_version(version: str, build: str) -> list[Finding]:
    """Temporal Cloud reports a version of its own, or none."""
    numbers = tuple(int(one) for one in version.partition("-")[0].split(".")[:2] if one.isdecimal())
    if len(numbers) == 2 and numbers < MIN_VERSION:
        todo = f"upgrade it to {'.'.join(map(str, MIN_VERSION))} or newer, or {set_in_chart('workerVersioning=false')}"
        if build:
            why = (
                f"version {version} is too old for Worker Versioning, which TEMPORAL_WORKER_BUILD_ID={build!r} asks for"
            )
            return [Subject(AREA, "server").problem(why, todo)]
        why = f"version {version} is too old for Worker Versioning; tested are {' and '.join(TESTED_VERSIONS)}"
        return [Subject(AREA, "server").advice(why, todo)]
    return [Subject(AREA, "server").ok(f"version {version or 'unknown'}")]


def _check_updates(namespace: str, has_capabilities: bool, *, updates: bool) -> list[Finding]:
    if not has_capabilities:
        return []
    if not updates:
        todo = _set_dynamic_config("frontend.enableUpdateWorkflowExecution", "true")
        message = f"not allowed in {namespace}: nothing can be approved or paused"
        return [Subject(AREA, "updates").problem(message, todo)]
    return [Subject(AREA, "updates").ok("allowed")]


def _check_limits(namespace: str, blob: int) -> list[Finding]:
    """`blob`: bytes; 0 if the server reports none."""
    if not blob:
        return []
    message = f"a payload in {namespace} may have {format_number(blob / _MIB, 6)} MiB"
    if blob < MIN_BLOB_BYTES:
        todo = _set_dynamic_config("limit.blobSize.error", str(MIN_BLOB_BYTES))
        return [Subject(AREA, "limits").advice(f"{message}; plans of a large cluster need more", todo)]
    return [Subject(AREA, "limits").ok(message)]


def _check_encryption(address: str, *, secure: bool) -> list[Finding]:
    if secure or address.startswith(_NEAR):
        return []
    todo = f"{set_in_chart('settings.TEMPORAL_TLS=true')}, or the files of mTLS, unless a service mesh encrypts it"
    return [Subject(AREA, "connection").advice(f"Tenure does not encrypt the connection to {address}", todo)]


def _set_dynamic_config(name: str, value: str) -> str:
    return (
        f"set {name} to {value} in server.dynamicConfig of temporal-values.yaml, "
        "then helm upgrade temporal temporal --repo https://go.temporal.io/helm-charts --version 1.6.0 "
        "-n temporal -f deploy/charts/temporal-values.yaml"
    )


_MIN_RETENTION: Final = timedelta(days=3)
"""`tenure why` explains a deleted node for as long as its history is kept."""


async def check_temporal(
    temporal: Client, cluster: str, *, region: str, queue: str = "", build: str = "", deployment: str = ""
) -> list[Finding]:
    """Each check runs separately, so that a rejected one hides no other. If the namespace is missing, that is
    the only finding.
    `region`, `queue`, `build` and `deployment`: the settings AWS_REGION, INTERRUPTION_QUEUE,
    TEMPORAL_WORKER_BUILD_ID and TEMPORAL_DEPLOYMENT_NAME."""

    async def service(temporal: Client, _: str) -> list[Finding]:
        return await check_service(temporal, build)

    async def reading(temporal: Client, cluster: str) -> list[Finding]:
        return await check_reading(temporal, cluster, queue, region)

    async def workers(temporal: Client, cluster: str) -> list[Finding]:
        return await _workers(temporal, cluster, deployment)

    found = []
    for check in (service, _namespace, _attributes, workers, check_invalid_objects, reading):
        try:
            found += await check(temporal, cluster)
        except RPCError as error:
            if lacks_namespace(error):
                todo = describe_namespace_creation(temporal.namespace)
                message = "Temporal has no namespace of this name"
                return [Subject(AREA, f"namespace {temporal.namespace}").problem(message, todo)]
            todo = f"allow these credentials to read the namespace {temporal.namespace}"
            found.append(Subject(AREA, check.__name__.strip("_")).unknown(error.message, todo))
        except BadInput as invalid:
            todo = "run doctor with TEMPORAL_PAYLOAD_KEYS_PATH of the worker"
            found.append(Subject(AREA, check.__name__.strip("_")).unknown(invalid.message, todo))
    return found


async def _namespace(temporal: Client, _: str) -> list[Finding]:
    response = await temporal.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=temporal.namespace)
    )
    retention = response.config.workflow_execution_retention_ttl.ToTimedelta()
    subject, message = f"namespace {temporal.namespace}", f"histories are kept for {_format_days(retention)}"
    if retention < _MIN_RETENTION:
        todo = (
            f"temporal operator namespace update --retention 30d {temporal.namespace}, "
            "or run `tenure history export` more often than that"
        )
        return [Subject(AREA, subject).advice(f"{message}: a node's history is lost soon after its deletion", todo)]
    return [Subject(AREA, subject).ok(message)]


async def _attributes(temporal: Client, _: str) -> list[Finding]:
    response = await temporal.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=temporal.namespace)
    )
    found = response.custom_attributes
    invalid = [f"{name} ({kind})" for name, kind in search_attributes.ALL.items() if not has_attribute(name, found)]
    if invalid:
        missing = [name for name in search_attributes.ALL if name not in found]
        todo = (
            "start the worker once with permission to create them, or: "
            f"{describe_attribute_creation(temporal.namespace, missing)}"
            if missing
            else _SEPARATE
        )
        if full := _exhausted_types(dict(response.custom_attributes)):
            todo = f"{todo}; but {full}: {_SEPARATE}"
        return [Subject(AREA, "search attributes").problem(f"missing or of another type: {', '.join(invalid)}", todo)]
    return [Subject(AREA, "search attributes").ok(f"all {len(search_attributes.ALL)} exist")]


async def _workers(temporal: Client, cluster: str, deployment: str) -> list[Finding]:
    queue = ids.task_queue(cluster)
    pollers = await list_pollers(temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    if not pollers:
        return [Subject(AREA, f"task queue {queue}").advice("no worker polls it", START_WORKER)]
    names = sorted({one.identity for one in pollers})
    host = await list_pollers(temporal, ids.plan_queue(cluster), TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    found = [Subject(AREA, f"task queue {queue}").ok(f"{len(names)} workers: {', '.join(names)}")]
    found += check_builds(await read_builds(temporal, cluster, deployment), utc_now())
    if not host:
        message = "no worker hosts the watch, so nothing is planned"
        todo = f"{READ_LOGS} gives the reason, and so do /readyz and the workflow {ids.watch(cluster)} in Temporal's UI"
        found.append(Subject(AREA, f"task queue {ids.plan_queue(cluster)}").advice(message, todo))
    return found


_ROLLOUT: Final = timedelta(minutes=15)
"""Longer than a rollout of the worker takes."""


def check_builds(builds: Builds, now: datetime) -> list[Finding]:
    """Empty if workers have no versions."""
    subject = Subject(AREA, "build")
    if not builds.current:
        return []
    found = [subject.ok(f"{builds.current} is current")]
    if builds.current not in builds.workers:
        message = f"no worker runs the current build {builds.current}, so its tasks wait"
        todo = f"deploy it again, or run `tenure build rollback --build {next(iter(builds.workers), 'BUILD')}`"
        found = [subject.problem(message, todo)]
    for build, number in sorted(builds.workers.items()):
        since = builds.without_tasks_since.get(build, now)
        if build in (builds.current, builds.ramping) or now - since < _ROLLOUT:
            continue
        message = f"{number} workers of {build} have had no tasks since {since:%Y-%m-%d %H:%M UTC}"
        todo = f"run `tenure build promote --build {build}`, or remove these workers"
        found.append(subject.advice(message, todo))
    if builds.ramping:
        message = f"{builds.ramping} gets {builds.ramp_percentage:g} % of the workflows"
        if builds.ramp_started and now - builds.ramp_started >= _ROLLOUT:
            message = f"{message} since {builds.ramp_started:%Y-%m-%d %H:%M UTC}"
            todo = f"run `tenure build promote --build {builds.ramping}`, or `tenure build rollback`"
            found.append(subject.advice(message, todo))
        else:
            found.append(subject.ok(message))
    return found


async def check_invalid_objects(temporal: Client, cluster: str) -> list[Finding]:
    """One problem for each object that the controller cannot read."""
    return [
        Subject("cluster", f"{one.kind} {one.name}").problem(one.message, f"{_edit(one)}, and correct this field")
        for one in (await query_invalid_objects(temporal, cluster)).objects
    ]


def _edit(one: InvalidObject) -> str:
    namespace, _, name = one.name.rpartition("/")
    return f"kubectl edit {one.kind.lower()} {name}{f' -n {namespace}' if namespace else ''}"


async def check_reading(temporal: Client, cluster: str, queue: str, region: str) -> list[Finding]:
    """The worker's own results for the queue and the status of instances, which name missing permissions. Empty if no
    worker ever ran or none responds, which is a separate finding."""
    state = await query_or_none(temporal, ids.interruption(cluster), "state", InterruptionState)
    if state is None:
        return []
    if state.queue != queue:
        same = set_in_chart(f"settings.INTERRUPTION_QUEUE={queue or state.queue}")
        todo = f"{same}, or set it for doctor as for the worker"
        message = f"the worker reads {state.queue or 'none'}, and INTERRUPTION_QUEUE here is {queue or 'not set'}"
        return [Subject(AREA, "event queue").advice(message, todo)]
    sources = (
        (f"queue {queue}", state.messages, "deploy/iam/interruption.json", ("Interruption=true",)),
        ("instance status", state.statuses, "deploy/iam/resource-discovery.json", ()),
    )
    found = []
    for name, source, permissions, parameters in sources if queue else sources[1:]:
        at = Subject(AREA, f"reading {name}")
        if source.failing_since:
            message = f"has failed since {source.failing_since:%Y-%m-%d %H:%M UTC}: {source.fault}"
            stack = deploy_stack("role", cluster, *parameters, region=region)
            todo = f"fix the cause; {stack} creates the permissions, which are in {permissions}"
            found.append(at.problem(message, todo))
        else:
            found.append(at.ok("no error"))
    return found


def _exhausted_types(custom: dict[str, int]) -> str:
    """Text that names types with too few free attributes on a SQL store; Elasticsearch has no such limit."""
    ours = Counter(search_attributes.ALL.values())
    others = Counter(kind for name, kind in custom.items() if name not in search_attributes.ALL)
    tight = [name for name, count in ours.items() if others[KINDS[name]] + count > search_attributes.SQL_LIMITS[name]]
    return f"other attributes of type {', '.join(tight)} leave too few free for them on PostgreSQL" if tight else ""


def _format_days(length: timedelta) -> str:
    days = length / timedelta(days=1)
    return "1 day" if days == 1 else f"{format_number(days, 6)} days"
