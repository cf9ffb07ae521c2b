"""`tenure history`: the events of a workflow, and the export of histories to files."""

import asyncio
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


async def terminated_workflows(address: str, cluster: str, number: int = 3) -> Connection:
    """Workflows that were terminated, since no worker runs that could complete them."""
    async with running_workflows(address, [state_of(one, NOW, cluster=cluster) for one in range(number)]) as connection:
        return connection


async def wait_until_closed(client: Client, cluster: str, number: int) -> None:
    query = f"WorkflowId STARTS_WITH '{cluster}/' AND ExecutionStatus != 'Running'"
    while (await client.count_workflows(query)).count < number:
        pass


async def test_history_is_read_by_name_or_workflow_id(address: str) -> None:
    connection = await terminated_workflows(address, "told")
    by_name = await read(connection, "web-00001")
    [(workflow, events)] = by_name
    assert [one.text.partition(":")[0] for one in events] == ["started", "was terminated"]
    assert await read(connection, workflow) == by_name
    with pytest.raises(UsageError, match="tenure get"):
        await read(connection, "' OR WorkflowId != '")


async def test_exported_histories_can_be_loaded_and_are_written_once(address: str, tmp_path: Path) -> None:
    connection = await terminated_workflows(address, "kept")
    client = await connection.connect()
    await wait_until_closed(client, "kept", 3)
    done = await export_histories(client, "kept", Folder(tmp_path), None)
    assert len(done.written) == 3 and not done.failed
    files = [tmp_path / name for name in done.written]
    assert [file.parts[-4] for file in files] == ["nodeclaim"] * 3
    assert WorkflowHistory.from_json("one", files[0].read_text()).events[0].event_id == 1
    repeated = await export_histories(client, "kept", Folder(tmp_path), None)
    assert (repeated.written, repeated.there) == ((), 3)


async def test_failed_export_does_not_block_the_others(address: str, tmp_path: Path) -> None:
    class FullFolder(Folder):
        def put(self, name: str, text: str) -> None:
            if "web-00001" in name:
                raise OSError("no space left on device")
            super().put(name, text)

    connection = await terminated_workflows(address, "broken")
    client = await connection.connect()
    await wait_until_closed(client, "broken", 3)
    done = await export_histories(client, "broken", FullFolder(tmp_path), NOW - timedelta(hours=1))
    assert len(done.written) == 2
    [line] = done.failed
    assert "web-00001" in line and "no space left" in line
    assert "run the command again" in format_summary(done, "there")
    assert len((await export_histories(client, "broken", Folder(tmp_path), None)).written) == 1


async def test_export_skips_workflows_closed_before_since(address: str, tmp_path: Path) -> None:
    client = await (await terminated_workflows(address, "early")).connect()
    await wait_until_closed(client, "early", 3)
    assert (
        await export_histories(client, "early", Folder(tmp_path), datetime.now(UTC) + timedelta(hours=1))
    ).written == ()


async def test_history_command_accepts_a_name(address: str, capsys: CaptureFixture[str]) -> None:
    await terminated_workflows(address, "named")
    await wait_until_closed(await Client.connect(address), "named", 3)
    where = ["--temporal-address", address, "--cluster-name", "named"]
    for options in ((), ("-o", "json")):
        assert await asyncio.to_thread(main, ["history", *options, "other-00001", *where]) == 2
        assert "history other-00001: no node or workflow" in capsys.readouterr().err


async def test_export_command_reports_an_empty_export(
    address: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    await terminated_workflows(address, "quiet")
    await wait_until_closed(await Client.connect(address), "quiet", 3)
    await asyncio.sleep(2)
    command = ["history", "export", "--to", str(tmp_path), "--since", "1s", "--temporal-address", address, "-o", "json"]
    assert await asyncio.to_thread(main, [*command, "--cluster-name", "quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": [], "there": 0, "failed": []}
    assert await asyncio.to_thread(main, [*command, "--cluster-name", "misspelled"]) == 2
    assert "no workflow of cluster misspelled" in capsys.readouterr().err
