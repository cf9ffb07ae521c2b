"""An invalid setting is one error line that names the setting and the fix, and exit code 2."""

import asyncio

from tenure.cli.admin.servers import worker_command
from tenure.cli.sandbox.worker_process import clean_environment
from tenure.controller.temporal.client import CLUSTER_UID
from tests.support.product.product import InstalledProduct
from workflows import ids


async def test_name_of_another_cluster_is_refused(product: InstalledProduct) -> None:
    name = "used-elsewhere"
    workflow_id = ids.watch(name)
    await product.temporal.start_workflow(
        "ClusterWatch", id=workflow_id, task_queue="unpolled", memo={CLUSTER_UID: "uid-of-another"}
    )
    settings = {"HEALTH_PROBE_PORT": "0", "METRICS_PORT": "0", "CLUSTER_NAME": name}
    try:
        child = await asyncio.create_subprocess_exec(
            *worker_command([]),
            env=clean_environment() | dict(product.sandbox.environment()) | settings,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await child.communicate())[0].decode()
        assert child.returncode == 2, output
        last = output.splitlines()[-1]
        assert f"CLUSTER_NAME={name}" in last and "uid-of-another" in last and f"--workflow-id {workflow_id}" in last
    finally:
        await product.temporal.get_workflow_handle(workflow_id).terminate()
