"""The last test of a run: after all tests, no resource remains when the product is uninstalled."""

from functools import partial
from pathlib import Path

from tenure.cli.sandbox.worker_process import WORKER_KEY
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, NODES
from tests.integration.test_invalid_nodeclass import VALID_SPEC
from tests.support.product.cluster_scope import ALIVE, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import NODE_CLASS
from tests.support.product.product import DedicatedProduct, InstalledProduct


async def test_no_resource_remains(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    await own_product.delete(EC2_NODE_CLASSES.path(NODE_CLASS))
    for kind in (NODE_CLAIMS, NODE_POOLS, EC2_NODE_CLASSES):
        await wait_until(partial(_assert_none, own_product, kind.path()))
    await own_product.wait_until_only_singletons_run()
    assert await own_product.failed_workflows() == []
    await own_product.stop_workers()
    await own_product.terminate_singletons()
    assert await _managed_nodes(own_product) == []
    assert [one["id"] for one in own_product.aws.list_instances()["instances"] if one["state"] in ALIVE] == []
    assert await own_product.launch_template_names() == []
    assert [one.id for one in await own_product.open_workflows()] == []
    denied = [
        (one["action"], one["resource"]) for one in own_product.aws.list_denials() if one["access_key"] == WORKER_KEY
    ]
    assert [one for one in denied if not _other_role(*one)] == []
    await wait_until(lambda: _assert_no_process(own_product))


def _other_role(action: str, resource: str) -> bool:
    """Some tests use another role than the nodes', which the worker may not pass."""
    return action == "iam:PassRole" and not resource.endswith(f":role/{VALID_SPEC['role']}")


async def _assert_none(product: InstalledProduct, path: str) -> None:
    remaining = object_names(await product.items(path))
    assert not remaining, f"{path}: {remaining}"


async def _assert_no_process(product: DedicatedProduct) -> None:
    """A planner ends when it notices that its worker is gone, so retry."""
    remaining = {worker.log.name: found for worker in product.workers if (found := _session_processes(worker.session))}
    assert not remaining, remaining


async def _managed_nodes(product: InstalledProduct) -> list[str]:
    return object_names(await product.items(NODES.path(), label="karpenter.sh/nodepool"))


def _session_processes(session: int) -> list[str]:
    """Names of the processes in a worker's session, such as its planner."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name, _, fields = text.partition("(")[2].rpartition(")")
        if int(fields.split()[3]) == session:
            found.append(name)
    return found
