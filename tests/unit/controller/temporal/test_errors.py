"""Temporal's errors become one line with the next step, and a missing namespace differs from a missing workflow."""

import pytest
from google.protobuf.any_pb2 import Any
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal.errors import format_rpc_error, lacks_namespace

MISSING = RPCStatusCode.NOT_FOUND


def status(detail: NamespaceNotFoundFailure | NotFoundFailure) -> bytes:
    packed = Any()
    packed.Pack(detail)
    return GrpcStatus(code=MISSING, details=[packed]).SerializeToString()


@pytest.mark.parametrize(
    ("message", "code", "raw", "lacks"),
    [
        ("Namespace prod is not found.", MISSING, b"", True),
        ("prod: not here", MISSING, status(NamespaceNotFoundFailure(namespace="prod")), True),
        ("workflow not found for ID: prod/nodepool/namespace", MISSING, status(NotFoundFailure()), False),
        ("namespace rate limit exceeded", RPCStatusCode.RESOURCE_EXHAUSTED, b"", False),
    ],
)
def test_missing_namespace_is_recognized(message: str, code: RPCStatusCode, raw: bytes, lacks: bool) -> None:
    assert lacks_namespace(RPCError(message, code, raw)) == lacks


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (
            MISSING,
            "Namespace prod is not found.",
            "temporal operator namespace create --namespace prod --retention 30d",
        ),
        (
            RPCStatusCode.PERMISSION_DENIED,
            "Request unauthorized.",
            "Request unauthorized; check the name",
        ),
        (RPCStatusCode.UNAVAILABLE, "error trying\nto connect", "error trying to connect; check that it runs"),
        (RPCStatusCode.RESOURCE_EXHAUSTED, "rate limit", "wait a minute"),
        (RPCStatusCode.INVALID_ARGUMENT, "TenureOverdue is unknown", "unknown; `tenure doctor` shows"),
        (RPCStatusCode.INTERNAL, "", "INTERNAL; `tenure doctor` shows"),
    ],
)
def test_rpc_error_is_one_line_with_the_next_step(code: RPCStatusCode, message: str, expected: str) -> None:
    line = format_rpc_error(RPCError(message, code, b""), namespace="prod", address="temporal:7233")
    assert expected in line and "Temporal at temporal:7233" in line and "\n" not in line
