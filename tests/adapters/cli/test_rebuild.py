"""`tenure rebuild`: what it says of what it found, and what to do where it cannot look."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.cli.admin.rebuild import as_json, summary, table_of
from tenure.cli.console import console
from tenure.controller.rebuild import Astray
from tenure.settings import Settings, load
from tests.support.cli.temporal_alone import temporal_alone

LOST = Astray(kind="NodeClaim", name="web-1", workflow="demo/nodeclaim/web-1/u")
GONE = Astray(kind="NodeClaim", name="web-2", workflow="demo/nodeclaim/web-2/u", gone=True)
READS = Astray(kind="Cluster", name="interruption", workflow="demo/interruption")
NAMED = Astray(kind="SearchAttribute", name="TenurePhase")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_alone(tmp_path_factory.mktemp("rebuild"))


def settings(*more: str) -> Settings:
    return load(["--cluster-name", "demo", *more])


def shown(found: list[Astray], *more: str, dry_run: bool = False) -> str:
    told = console()
    with told.capture() as captured:
        told.print(table_of(found, settings(*more), dry_run))
    return captured.get()


def test_a_dry_run_says_what_would_be_done_and_how_to_do_it() -> None:
    assert summary([LOST, READS, GONE], True) == (
        "Would be: 2 started, 1 told that their object is gone. To do it, run this without --dry-run."
    )
    assert as_json(LOST, True)["done"] is None and "would be" in shown([LOST], dry_run=True)


def test_what_was_done_is_said_with_where_to_look_next() -> None:
    assert summary([LOST], False).startswith("1 started. ") and "tenure stuck" in summary([LOST], False)
    assert as_json(GONE, False) == {
        "kind": "NodeClaim",
        "name": "web-2",
        "workflow": "demo/nodeclaim/web-2/u",
        "found": "its object is gone",
        "done": "told; it looks for itself, then ends",
    }
    assert as_json(NAMED, False)["workflow"] is None and as_json(NAMED, False)["done"] == "registered"


def test_nothing_missing_is_one_line() -> None:
    assert (
        summary([], True)
        == summary([], False)
        == ("Nothing is missing in Temporal, and nothing runs there without its object.")
    )


def test_which_queue_of_events_will_be_read_is_said_since_only_settings_know_it() -> None:
    assert "INTERRUPTION_QUEUE is not set here" in shown([READS])
    assert "to read prod-events" in shown([READS], "--interruption-queue", "prod-events")


def test_without_a_cluster_it_is_one_line_and_exit_code_2(address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "rebuild", "--dry-run", "-o", "json", "--temporal-address", address],
        env=os.environ | {"CLUSTER_NAME": "demo", "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("tenure: rebuild: ") and "KUBECONFIG" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, json.dumps(done.stderr)
