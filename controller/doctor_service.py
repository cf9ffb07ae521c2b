"""Checks of the Temporal service itself: its version, what it can do, what it lets pass, and how it is reached."""

from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client

from model.findings import Finding, advice, ok, problem

AREA: Final = "temporal"
OLDEST: Final = (1, 28)
"""The first that keeps builds of the worker apart, as the chart has it unless told otherwise."""
TESTED: Final = ("1.31.2", "1.32.0")
_MIB: Final = 2**20
BLOB: Final = 2 * _MIB
"""What a payload may take by default; plans of large clusters come near."""
_NEAR: Final = ("127.", "localhost", "[::1]")


async def check_service(temporal: Client, build: str) -> list[Finding]:
    """`build`: the setting TEMPORAL_WORKER_BUILD_ID. Raises RPCError where the namespace cannot be read."""
    system = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    answer = await temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=temporal.namespace))
    info = answer.namespace_info
    config = temporal.service_client.config
    return [
        *_version(system.server_version, build),
        *_updates(temporal.namespace, info.HasField("capabilities"), updates=info.capabilities.sync_update),
        *_limits(temporal.namespace, info.limits.blob_size_limit_error),
        *_way(config.target_host, secure=bool(config.tls)),
    ]


def _version(said: str, build: str) -> list[Finding]:
    """Temporal Cloud says one of its own, or none."""
    numbers = tuple(int(one) for one in said.partition("-")[0].split(".")[:2] if one.isdecimal())
    if len(numbers) == 2 and numbers < OLDEST:
        todo = (
            f"upgrade it to {'.'.join(map(str, OLDEST))} or newer, or set workerVersioning: false in the chart's values"
        )
        if build:
            why = f"version {said} is too old for Worker Versioning, which TEMPORAL_WORKER_BUILD_ID={build!r} asks for"
            return [problem(AREA, "server", why, todo)]
        why = f"version {said} is too old for Worker Versioning; tested are {' and '.join(TESTED)}"
        return [advice(AREA, "server", why, todo)]
    return [ok(AREA, "server", f"version {said or 'not told'}")]


def _updates(namespace: str, told: bool, *, updates: bool) -> list[Finding]:
    if not told:
        return []
    if not updates:
        todo = "set frontend.enableUpdateWorkflowExecution to true in the server's dynamic config"
        return [problem(AREA, "updates", f"not allowed in {namespace}: nothing can be approved or paused", todo)]
    return [ok(AREA, "updates", "allowed")]


def _limits(namespace: str, blob: int) -> list[Finding]:
    """`blob`: bytes; 0 where the server does not say."""
    if not blob:
        return []
    said = f"a payload in {namespace} may have {blob / _MIB:g} MiB"
    if blob < BLOB:
        todo = "raise limit.blobSize.error to 2097152 or more in the server's dynamic config"
        return [advice(AREA, "limits", f"{said}; plans of a large cluster need more", todo)]
    return [ok(AREA, "limits", said)]


def _way(address: str, *, secure: bool) -> list[Finding]:
    if secure or address.startswith(_NEAR):
        return []
    todo = "set TEMPORAL_TLS, or the files of mTLS, unless a mesh encrypts what passes"
    return [advice(AREA, "connection", f"what passes to {address} is not encrypted by Tenure", todo)]
