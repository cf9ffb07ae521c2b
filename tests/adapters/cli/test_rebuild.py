"""`tenure rebuild`: its report, and its error when the cluster is unreachable."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.cli.admin.rebuild import as_json, findings_table, rebuild_workflows, summarize_rebuild
from tenure.cli.exit_codes import UsageError
from tenure.controller.rebuild import Discrepancy
from tenure.controller.temporal.client import Installation, start_singletons
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.settings import load
from tests.support.cli.temporal_server import temporal_server

LOST = Discrepancy(kind="NodeClaim", name="web-1", workflow="demo/nodeclaim/web-1/u")
ORPHANED = Discrepancy(kind="NodeClaim", name="web-2", workflow="demo/nodeclaim/web-2/u", is_orphaned=True)
READS = Discrepancy(kind="Cluster", name="interruption", workflow="demo/interruption")
NAMED = Discrepancy(kind="SearchAttribute", name="TenurePhase")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("rebuild"))


def render_table(found: list[Discrepancy], *more: str, dry_run: bool = False) -> str:
    return str(findings_table(found, load(["--cluster-name", "demo", *more]), dry_run))


def test_dry_run_summary_says_how_to_repair() -> None:
    assert summarize_rebuild([LOST, READS, ORPHANED], True) == (
        "Would be: 2 started, 1 notified that their object is deleted. To apply this, run without --dry-run."
    )
    assert as_json(LOST, True)["done"] is None and "WOULD BE" in render_table([LOST], dry_run=True)


def test_repair_summary_names_the_next_command() -> None:
    done = summarize_rebuild([LOST], False)
    assert done.startswith("1 started. ") and "tenure stuck" in done
    assert as_json(ORPHANED, False) == {
        "kind": "NodeClaim",
        "name": "web-2",
        "workflow": "demo/nodeclaim/web-2/u",
        "found": "object is deleted",
        "done": "notified; it checks the object, then ends",
    }
    assert as_json(NAMED, False)["workflow"] is None and as_json(NAMED, False)["done"] == "registered"


def test_summary_is_one_line_when_nothing_is_missing() -> None:
    nothing = "No workflow or Schedule is missing, and no workflow runs without its object."
    assert {summarize_rebuild([], dry_run) for dry_run in (True, False)} == {nothing}


def test_table_names_the_interruption_queue_of_the_settings() -> None:
    assert "INTERRUPTION_QUEUE is not set here" in render_table([READS])
    assert "with queue prod-events" in render_table([READS], "--interruption-queue", "prod-events")


def test_unreachable_cluster_is_one_error_line_and_exit_code_2(address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "rebuild", "--dry-run", "-o", "json", "--temporal-address", address],
        env=os.environ | {"CLUSTER_NAME": "demo", "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("tenure: rebuild: ") and "KUBECONFIG" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, json.dumps(done.stderr)


class EmptyCluster:
    """The API server of a cluster without objects."""

    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        return {"metadata": {"uid": "uid-b"}, "items": []}

    async def close(self) -> None:
        return


@pytest.mark.parametrize("dry_run", [True, False])
async def test_another_cluster_of_the_same_name_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    async def connect_all(_: str) -> KubeAdapters:
        return KubeAdapters(cast(KubeClient, EmptyCluster()))

    monkeypatch.setattr("tenure.kube.adapters.build.connect_all", connect_all)
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    await start_singletons(client, Installation("taken", cluster_uid="uid-a"))
    settings = load(["--cluster-name=taken", f"--temporal-address={address}"])
    with pytest.raises(UsageError, match=r"UID uid-a uses this name.*; check that KUBECONFIG names the right cluster"):
        await rebuild_workflows(settings, dry_run=dry_run)
