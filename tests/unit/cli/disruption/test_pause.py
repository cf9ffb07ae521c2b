"""`tenure pause` and `tenure resume`: rejected input, and the display of paused objects."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

from tenure.cli.disruption.pause import Target, build_pause, current_user, send_request
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.stuck import PausedObject, paused_object_name, paused_table
from tenure.cli.temporal_client import Connection
from tenure.model.signals import Pause
from tenure.model.workflow_states import NodePoolState
from tenure.policy.lifecycle.pauses import pause_from_annotation, problem_of, write_pause
from tests.support.fakes.time_skipping_server import time_skipping

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_pause_has_duration_or_end_time() -> None:
    assert build_pause("2h", "", "why", "ann", NOW).until == NOW + timedelta(hours=2)
    assert build_pause("", "2026-06-01T18:00:00Z", "why", "ann", NOW).until == NOW + timedelta(hours=6)


@pytest.mark.parametrize(
    ("duration", "until", "reason", "named"),
    [
        ("", "", "why", "exactly one of --for and --until is required"),
        ("2h", "2026-06-01T18:00:00Z", "why", "exactly one of --for and --until is required"),
        ("two hours", "", "why", "--for: "),
        ("", "tomorrow", "why", "--until: invalid time 'tomorrow', expected RFC 3339"),
        ("", "2026-06-01T11:00:00Z", "why", "--until: 2026-06-01T11:00:00+00:00: in the past"),
        ("2h", "", "", "--reason: '' of 0 characters, expected 1 to 300"),
        ("Never", "", "why", "in the past"),
    ],
)
def test_invalid_pause_is_rejected_with_expected_form(duration: str, until: str, reason: str, named: str) -> None:
    with pytest.raises(UsageError) as error:
        build_pause(duration, until, reason, "ann", NOW)
    assert named in str(error.value)


@pytest.mark.parametrize("target", [Target(), Target(cluster=True, pool="gpu"), Target(pool="gpu", node="n")])
def test_exactly_one_target_is_paused(target: Target) -> None:
    with pytest.raises(UsageError, match="--cluster, --nodepool NAME and --node NAME"):
        target.check("pause")


def test_current_user_is_a_valid_requester() -> None:
    assert problem_of(Pause(by=current_user(), reason="why", until=NOW + timedelta(hours=1)), NOW) == ""


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_user_without_name_is_identified_by_number(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """`getpass.getuser` raises KeyError before Python 3.13, and OSError from then on."""

    def raise_lookup_error() -> str:
        raise error("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", raise_lookup_error)
    monkeypatch.setattr("os.getuid", lambda: 65532)
    monkeypatch.setattr("socket.gethostname", lambda: "tenure-0")
    assert current_user() == "uid 65532@tenure-0"
    pause = Pause(by=current_user(), reason="why", until=NOW + timedelta(hours=1))
    assert problem_of(pause, NOW) == "" and pause_from_annotation(write_pause(pause)) == pause


def test_paused_objects_show_requester_end_and_reason() -> None:
    found = [
        paused_object_name(one, "demo")
        for one in ("demo/cluster", "demo/nodepool/gpu", "demo/nodeclaim/gpu-x/abcdef12")
    ]
    assert found == ["the cluster", "NodePool gpu", "NodeClaim gpu-x"]
    pause = Pause(by="ann", reason="why", until=NOW)
    output = str(paused_table([PausedObject("NodePool gpu", pause), PausedObject("the cluster")]))
    assert "is paused by ann until 2026-06-01T12:00:00Z: why" in output and "its workflow did not respond" in output


async def test_missing_worker_falls_back_to_signal_and_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.temporal_updates.UPDATE_TIMEOUT", timedelta(seconds=1))
    async with time_skipping() as server:

        async def client(_: Connection) -> Client:
            return server.client

        monkeypatch.setattr(Connection, "connect", client)
        connection = Connection("", "", "demo")
        state = NodePoolState(cluster="demo", name="gpu")
        handle = await server.client.start_workflow("NodePool", state, id="demo/nodepool/gpu", task_queue="nobody")
        pause = build_pause("2h", "", "why", "ann", datetime.now(UTC))
        message = await send_request(connection, Target(pool="gpu"), "pause", pause)
        assert "sent as a signal" in message
        signals = [
            event.workflow_execution_signaled_event_attributes.signal_name
            for event in (await handle.fetch_history()).events
        ]
        assert "pause_disruption" in signals
        monkeypatch.setattr("tenure.cli.temporal_updates.UPDATE_TIMEOUT", timedelta(seconds=60))
        with pytest.raises(UsageError, match="--nodepool other: no workflow demo/nodepool/other runs"):
            await send_request(connection, Target(pool="other"), "pause", pause)
