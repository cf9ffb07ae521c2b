"""An invalid setting is one error line that names the setting and the fix, and exit code 2."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tenure.cli.admin.servers import worker_command
from tenure.cli.sandbox.worker_process import clean_environment
from tenure.controller.temporal.client import CLUSTER_UID
from tests.support.product.product import InstalledProduct
from workflows import ids

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"CLUSTER_NAME": None}, ["CLUSTER_NAME", "is not set"]),
        ({"TEMPORAL_ADDRESS": NOWHERE}, ["TEMPORAL_ADDRESS", NOWHERE, "no Temporal service"]),
        ({"KUBECONFIG": "/nowhere/config"}, ["KUBECONFIG", "/nowhere/config"]),
        ({"FEATURE_GATES": "NodeRepare=true"}, ["FEATURE_GATES", "NodeRepare", "NodeRepair"]),
        ({"BATCH_MAX_DURATION": "soon"}, ["BATCH_MAX_DURATION", "soon"]),
        ({"METRICS_PORT": "seventy"}, ["METRICS_PORT", "seventy"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, Mapping) else "",
)
async def test_invalid_setting_is_one_error_line(
    product: InstalledProduct, settings: dict[str, str | None], messages: list[str]
) -> None:
    code, output = await _run_worker(product.sandbox.environment(), settings)
    assert code == 2, output
    assert len(output.splitlines()) == 1, output
    assert all(message in output for message in messages), output


async def test_unreachable_cluster_is_named(product: InstalledProduct, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(product.sandbox.kubeconfig.read_text().replace(product.sandbox.apiserver, f"https://{NOWHERE}"))
    code, output = await _run_worker(product.sandbox.environment(), {"KUBECONFIG": str(config)})
    assert (code, len(output.splitlines())) == (2, 1), output
    assert "KUBECONFIG" in output and str(config) in output


async def test_unknown_flag_is_named(product: InstalledProduct) -> None:
    code, output = await _run_worker(product.sandbox.environment(), {}, "--cluster-nam=demo")
    assert (code, len(output.splitlines())) == (2, 1), output
    assert "--cluster-nam" in output and "--help" in output


async def test_name_of_another_cluster_is_refused(product: InstalledProduct) -> None:
    name = "used-elsewhere"
    workflow_id = ids.watch(name)
    await product.temporal.start_workflow(
        "ClusterWatch", id=workflow_id, task_queue="unpolled", memo={CLUSTER_UID: "uid-of-another"}
    )
    try:
        code, output = await _run_worker(product.sandbox.environment(), {"CLUSTER_NAME": name})
        assert code == 2, output
        last = output.splitlines()[-1]
        assert f"CLUSTER_NAME={name}" in last and "uid-of-another" in last and f"--workflow-id {workflow_id}" in last
    finally:
        await product.temporal.get_workflow_handle(workflow_id).terminate()


async def _run_worker(
    environment: Mapping[str, str], settings: Mapping[str, str | None], *flags: str
) -> tuple[int | None, str]:
    """Exit code and output."""
    child_environment = (
        clean_environment() | dict(environment) | {"HEALTH_PROBE_PORT": "0", "METRICS_PORT": "0"} | dict(settings)
    )
    child = await asyncio.create_subprocess_exec(
        *worker_command(list(flags)),
        env={name: value for name, value in child_environment.items() if value is not None},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    return child.returncode, output.decode()
