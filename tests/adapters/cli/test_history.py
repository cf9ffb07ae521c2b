"""`tenure history`: what happened, in words; and histories that outlive Temporal."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from _pytest.capture import CaptureFixture
from temporalio.client import Client, WorkflowHistory

from benchmarks.cli_latency import state_of
from tenure.cli.exit_codes import UsageError
from tenure.cli.main import main
from tenure.cli.nodes.history import Folder, export_histories, format_summary, read
from tenure.cli.temporal_client import Connection
from tests.support.cli.temporal_server import running_workflows, temporal_server

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("temporal"))


async def ended(address: str, cluster: str, number: int = 3) -> Connection:
    """Lives that are over: terminated, since no worker is there to end them."""
    async with running_workflows(address, [state_of(one, NOW, cluster=cluster) for one in range(number)]) as connection:
        return connection


async def closed(client: Client, cluster: str, number: int) -> None:
    query = f"WorkflowId STARTS_WITH '{cluster}/' AND ExecutionStatus != 'Running'"
    while (await client.count_workflows(query)).count < number:
        pass


async def test_a_life_is_told_by_its_name_and_by_its_workflow(address: str) -> None:
    connection = await ended(address, "told")
    by_name = await read(connection, "web-00001")
    [(workflow, events)] = by_name
    assert [one.text.partition(":")[0] for one in events] == ["begins", "was terminated by hand"]
    assert await read(connection, workflow) == by_name
    with pytest.raises(UsageError, match="tenure get"):
        await read(connection, "' OR WorkflowId != '")


async def test_what_is_exported_can_be_replayed_and_is_not_written_twice(address: str, tmp_path: Path) -> None:
    connection = await ended(address, "kept")
    client = await connection.connect()
    await closed(client, "kept", 3)
    done = await export_histories(client, "kept", Folder(tmp_path), None)
    assert len(done.written) == 3 and not done.failed
    files = [tmp_path / name for name in done.written]
    assert [file.parts[-4] for file in files] == ["nodeclaim"] * 3
    assert WorkflowHistory.from_json("one", files[0].read_text()).events[0].event_id == 1
    repeated = await export_histories(client, "kept", Folder(tmp_path), None)
    assert (repeated.written, repeated.there) == ((), 3)


async def test_one_that_cannot_be_written_does_not_keep_the_others(address: str, tmp_path: Path) -> None:
    class Full(Folder):
        def put(self, name: str, text: str) -> None:
            if "web-00001" in name:
                raise OSError("no space left on device")
            super().put(name, text)

    connection = await ended(address, "broken")
    client = await connection.connect()
    await closed(client, "broken", 3)
    done = await export_histories(client, "broken", Full(tmp_path), NOW - timedelta(hours=1))
    assert len(done.written) == 2
    [line] = done.failed
    assert "web-00001" in line and "no space left" in line
    assert "run it again" in format_summary(done, "there")
    assert len((await export_histories(client, "broken", Folder(tmp_path), None)).written) == 1


async def test_those_that_ended_before_are_left_out(address: str, tmp_path: Path) -> None:
    client = await (await ended(address, "early")).connect()
    await closed(client, "early", 3)
    assert (
        await export_histories(client, "early", Folder(tmp_path), datetime.now(UTC) + timedelta(hours=1))
    ).written == ()


def test_from_a_shell_a_name_needs_no_command_before_it(address: str, capsys: CaptureFixture[str]) -> None:
    where = ["--temporal-address", address, "--cluster-name", "nobody"]
    assert main(["history", "web-00001", *where]) == 2
    assert "history web-00001: no node or workflow" in capsys.readouterr().err
    assert main(["history", "-o", "json", "web-00001", *where]) == 2
    assert "history web-00001" in capsys.readouterr().err


def test_from_a_shell_an_empty_export_says_so(address: str, tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    where = ["--temporal-address", address, "--cluster-name", "nobody", "-o", "json"]
    assert main(["history", "export", "--to", str(tmp_path), "--since", "24h", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": [], "there": 0, "failed": []}
