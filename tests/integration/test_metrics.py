"""What a worker's metrics port really shows is what docs/reference/metrics.md says: names, types and labels."""

import aiohttp
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tools.metrics.catalog import MEASURES, TEMPORALS

OF_A_LIFE = {
    "tenure_nodeclaims",
    "tenure_startup_duration_seconds",
    "tenure_aws_call_wait_seconds",
    "tenure_kubernetes_call_wait_seconds",
    "karpenter_nodepools_cost_total",
    "karpenter_nodeclaims_terminated_total",
    "karpenter_nodeclaims_created_total",
    "karpenter_nodes_created_total",
    "karpenter_nodes_terminated_total",
    "karpenter_nodes_drained_total",
    "karpenter_scheduler_scheduling_duration_seconds",
    "karpenter_voluntary_disruption_decisions_total",
}
"""Of a node that is bought, serves, empties and goes."""


async def test_what_a_worker_shows_is_what_the_reference_says(own_product: OwnProduct) -> None:
    await own_product.work()
    async with own_product.scene("metrics") as scene:
        await scene.run(1)
        cost = await eventually(lambda: own_product.metric("karpenter_nodepools_cost_total", nodepool=scene.name))
        assert 0 < cost < 10
        ready = {"nodepool": scene.name, "phase": "Ready"}
        assert await eventually(lambda: own_product.metric("tenure_nodeclaims", **ready)) == 1
        await scene.scale(0)
        await eventually(lambda: scene.instances_alive(0))
        place = {"nodepool": scene.name}
        await eventually(lambda: own_product.metric("karpenter_nodeclaims_terminated_total", **place))
    async with aiohttp.ClientSession() as session, session.get(own_product.worker.metrics) as answer:
        text = await answer.text()
    shown = {one.name: one for one in text_string_to_metric_families(text)}
    told = {one.name.removesuffix("_total") if one.kind == "counter" else one.name: one for one in MEASURES}
    own = {name: one for name, one in shown.items() if name.startswith(("tenure_", "karpenter_"))}
    assert own.keys() <= told.keys()
    assert {family for family, one in told.items() if one.name in OF_A_LIFE} <= own.keys()
    for name, family in own.items():
        assert family.type == told[name].kind, name
        assert labels_of(family) <= {frozenset(told[name].labels)}, name
    assert {name for name, kind, _ in TEMPORALS if kind != "counter"} <= shown.keys()
    assert all(shown[name].type == kind for name, kind, _ in TEMPORALS if name in shown)


def labels_of(family: Metric) -> set[frozenset[str]]:
    """Without those that Prometheus and the SDK add."""
    added = {"le", "service_name", "namespace", "task_queue", "activity_type", "workflow_type"}
    return {frozenset(one.labels.keys() - added) for one in family.samples}
