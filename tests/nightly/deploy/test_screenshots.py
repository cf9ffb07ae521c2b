"""The pictures of Temporal's UI, and the queries beside them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from benchmarks.asking import state_of
from benchmarks.running import run
from deploy.pages import QUERIES
from deploy.screenshots.__main__ import FOLDER, LARGEST, app
from deploy.screenshots.browser import NoBrowser, find
from tests.support.cli.temporal_alone import standing, temporal_alone

PAGE = FOLDER.parent / "temporal-ui.md"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_alone(tmp_path_factory.mktemp("temporal"))


async def test_temporal_takes_each_query_of_the_documents_and_finds_what_it_says(address: str) -> None:
    """Of ten nodes 7 are Ready, one each is in Launch, Initialization and Drain, the last overdue."""
    now = datetime.now(UTC)
    async with standing(address, [state_of(one, now, cluster="queries") for one in range(10)]):
        client = await Client.connect(address)
        found = {what: (await client.count_workflows(query)).count for what, query in QUERIES}
    assert found == {
        "nodes that are overdue": 1,
        "nodes that drain": 1,
        "nodes of a NodePool": 0,
        "nodes that start": 2,
        "what waits for a person": 1,
        "what is paused": 0,
        "the node of an instance, also a gone one": 0,
    }


def test_the_page_has_the_queries_that_were_tried() -> None:
    written = PAGE.read_text()
    for what in ("nodes that are overdue", "nodes that drain", "nodes of a NodePool"):
        assert f"`{dict(QUERIES)[what]}`" in written


def test_pictures_are_small_and_each_is_shown() -> None:
    pictures = sorted(FOLDER.glob("*.png"))
    written = PAGE.read_text()
    assert pictures and all(f"(pictures/{one.name})" in written for one in pictures)
    assert all(one.stat().st_size <= LARGEST for one in pictures)


def test_without_a_browser_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["pictures", "--folder", str(tmp_path)])
    assert run(app, "pictures") == 2
    assert "apt-get install chromium" in capsys.readouterr().err


def test_a_browser_that_is_named_has_to_be_there() -> None:
    with pytest.raises(NoBrowser, match="CHROMIUM=/nowhere/chrome"):
        find("/nowhere/chrome")
