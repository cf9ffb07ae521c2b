"""Temporal connection options, `--output` and Temporal errors are the same in every command that uses Temporal."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.capture import CaptureFixture
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode
from typer.main import get_command

from tenure.cli.exit_codes import UsageError
from tenure.cli.main import VERBS, app, load_command, main
from tenure.cli.nodes.why import query_disruption_status
from tenure.cli.temporal_client import Connection
from tenure.cli.temporal_updates import send_update_for_message
from tenure.controller.temporal.encryption import EncryptionCodec
from tenure.model.disruption.commands import CommandCancellation
from tenure.model.errors import BadInput

TEMPORAL_VERBS = ("approve", "cancel", "events", "get", "pause", "plan", "reject", "resume", "stuck", "ui", "why")


def options_of(verb: str) -> dict[str, Any]:
    return {name: one for one in load_command(verb).params for name in one.opts}


@pytest.mark.parametrize("verb", TEMPORAL_VERBS)
def test_temporal_command_has_all_connection_options(verb: str) -> None:
    found = options_of(verb)
    assert found["--temporal-api-key"].envvar == "TEMPORAL_API_KEY"
    assert found["--temporal-ui-url"].envvar == "TEMPORAL_UI_URL"
    assert found["--temporal-cert"].envvar == "TEMPORAL_TLS_CLIENT_CERT_PATH"
    assert {"--temporal-address", "--temporal-tls", "--temporal-ca", "--temporal-key", "--cluster-name"} <= set(found)


def test_page_of_a_workflow_needs_the_address_of_the_ui() -> None:
    known = Connection("temporal:7233", "prod", "demo", ui="https://ui/")
    assert known.page_url("demo/nodepool/gpu") == "https://ui/namespaces/prod/workflows/demo%2Fnodepool%2Fgpu"
    assert Connection("temporal:7233", "prod", "demo").page_url("demo/nodepool/gpu") == ""


def test_invalid_output_format_is_one_line(capsys: CaptureFixture[str]) -> None:
    assert main(["stuck", "-o", "xml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--output" in line and "'table', 'json', 'yaml'" in line


def test_incomplete_mtls_is_rejected_before_connecting(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", "/some/cert.pem")
    assert main(["get", "--cluster-name", "demo"]) == 2
    assert "TEMPORAL_TLS_CLIENT_KEY_PATH" in capsys.readouterr().err


async def test_command_without_keys_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    (encrypted,) = await EncryptionCodec({"one": bytes(32)}).encode([Payload(metadata={"encoding": b"json/plain"})])
    options: dict[str, Any] = {}

    async def connect(_: str, **found: Any) -> None:
        options.update(found)

    monkeypatch.setattr(Client, "connect", connect)
    connection = Connection("temporal:7233", "prod", "demo")
    await connection.connect()
    with pytest.raises(BadInput, match="TEMPORAL_PAYLOAD_KEYS_PATH: not set"):
        await options["data_converter"].decode([encrypted])
    event = HistoryEvent()
    event.user_metadata.summary.CopyFrom(encrypted)
    with pytest.raises(UsageError, match="TEMPORAL_PAYLOAD_KEYS_PATH: not set"):
        connection.decrypt_events([event])


def test_completion_option_belongs_to_program_only() -> None:
    assert "--install-completion" in {name for one in get_command(app).params for name in one.opts}
    assert not [verb for verb in VERBS if "--install-completion" in options_of(verb)]


class FailingTemporal:
    """A fake Temporal client whose calls all fail."""

    namespace = "prod"
    service_client = SimpleNamespace(config=SimpleNamespace(target_host="temporal:7233"))

    def __init__(self, error: RPCError) -> None:
        self._error = error

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[WorkflowExecution]:
        for error in (self._error,):
            raise error
            yield

    async def raise_error(self, *_: Any, **__: Any) -> None:
        raise self._error

    count_workflows = describe = execute_update = execute_workflow = fetch_history = query = signal = raise_error
    describe_task_queue = raise_error

    @property
    def workflow_service(self) -> "FailingTemporal":
        return self

    def get_workflow_handle(self, *_: Any, **__: Any) -> "FailingTemporal":
        return self


@pytest.mark.parametrize(
    ("status", "message", "todo"),
    [
        (RPCStatusCode.NOT_FOUND, "Namespace prod is not found.", "create it: temporal operator namespace create"),
        (RPCStatusCode.PERMISSION_DENIED, "Request unauthorized.", "provide credentials"),
        (RPCStatusCode.UNAVAILABLE, "connection refused", "check that it runs, then run this again"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        "approve web-3f2a9c --by ann",
        "events",
        "get",
        "get web-1",
        "cancel 3f2a9c --by ann",
        "history web-1",
        "history export --to nowhere",
        "pause --cluster --for 1h --reason why --by ann",
        "pause --node web-1 --for 1h --reason why --by ann",
        "plan",
        "reject web-3f2a9c --by ann",
        "resume --node web-1",
        "resume --nodepool web",
        "stuck",
        "why web-1",
    ],
)
def test_temporal_error_is_one_line_with_next_step(
    command: str,
    status: RPCStatusCode,
    message: str,
    todo: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: CaptureFixture[str],
) -> None:
    async def client(_: Connection) -> Client:
        return cast(Client, FailingTemporal(RPCError(message, status, b"")))

    monkeypatch.setattr(Connection, "connect", client)
    where = ["--temporal-address", "temporal:7233", "--temporal-namespace", "prod", "--cluster-name", "demo"]
    assert main([*command.split(), *where]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tenure: ") and "Temporal at temporal:7233" in line and todo in line


class EmptyTemporal(FailingTemporal):
    """A fake Temporal client that finds no workflow of a given name."""

    async def count_workflows(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(count=1)

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[WorkflowExecution]:
        for one in cast(tuple[WorkflowExecution, ...], ()):
            yield one


@pytest.mark.parametrize(
    ("command", "todo"),
    [
        ("approve web-3f2a9c --by ann", "events of a NodePool name its plans"),
        ("events web-1", "`tenure get` lists the nodes"),
        ("cancel 3f2a9c --by ann", "`tenure stuck`"),
        ("history web-1", "`tenure get` lists the nodes"),
        ("pause --node web-1 --for 1h --reason why --by ann", "`tenure get` lists them"),
        ("reject web-3f2a9c --by ann", "events of a NodePool name its plans"),
    ],
)
def test_unknown_name_says_where_names_are_listed(
    command: str, todo: str, monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    async def client(_: Connection) -> Client:
        not_found = RPCError("workflow not found for ID: demo/x", RPCStatusCode.NOT_FOUND, b"")
        return cast(Client, EmptyTemporal(not_found))

    monkeypatch.setattr(Connection, "connect", client)
    assert main([*command.split(), "--cluster-name", "demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert todo in line


async def send_to(temporal: FailingTemporal) -> str:
    request = CommandCancellation(by="ann", reason="why")
    return await send_update_for_message(
        cast(Client, temporal), "demo/disruption/1", "cancel", request, about="x", absent="y"
    )


async def test_missing_worker_names_doctor_command() -> None:
    late = FailingTemporal(RPCError("too late", RPCStatusCode.DEADLINE_EXCEEDED, b""))
    with pytest.raises(
        UsageError, match=r"no worker responded within 20 s, so nothing was changed; run `tenure doctor`"
    ):
        await send_to(late)


class UnpolledTemporal(FailingTemporal):
    """A fake Temporal client of a cluster without workers."""

    async def describe_task_queue(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(pollers=[])


async def test_update_is_not_sent_if_no_worker_polls() -> None:
    unsent = UnpolledTemporal(RPCError("must not be sent", RPCStatusCode.INTERNAL, b""))
    with pytest.raises(UsageError, match="no worker polls the task queue demo, so nothing was changed"):
        await send_to(unsent)
    assert (
        "no worker polls the task queue demo" in (await query_disruption_status(cast(Client, unsent), "demo")).blocked
    )


def test_pause_of_an_unknown_nodepool_is_a_usage_error_without_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    async def client(_: Connection) -> Client:
        return cast(Client, UnpolledTemporal(RPCError("workflow not found for ID: x", RPCStatusCode.NOT_FOUND, b"")))

    monkeypatch.setattr(Connection, "connect", client)
    command = "pause --nodepool typo --for 1h --reason why --by ann --cluster-name demo"
    assert main(command.split()) == 2
    assert "--nodepool typo: no workflow demo/nodepool/typo runs; check the name" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["get", "why web-1", "stuck", "plan", "events", "history export --to nowhere"])
def test_cluster_without_workflows_is_a_usage_error(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    class NoWorkflows(EmptyTemporal):
        async def count_workflows(self, query: str) -> Any:
            assert query == "WorkflowId STARTS_WITH 'typo/'"
            return SimpleNamespace(count=0)

    async def client(_: Connection) -> Client:
        return cast(Client, NoWorkflows(RPCError("unused", RPCStatusCode.INTERNAL, b"")))

    monkeypatch.setattr(Connection, "connect", client)
    assert main([*command.split(), "--cluster-name", "typo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "namespace prod has no workflow of cluster typo" in line and "CLUSTER_NAME of the worker" in line
