"""A worker's metrics endpoint matches docs/reference/metrics.md: names, types and labels."""

import aiohttp
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tenure.metrics import METRICS
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from tools.metrics.catalog import TEMPORALS

LIFECYCLE_METRICS = {
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
"""Metrics of a node that launches, becomes empty and is deleted."""


async def test_exported_metrics_match_the_reference(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("metrics") as scope:
        await scope.run_pods(1)
        cost = await wait_until(lambda: own_product.metric_value("karpenter_nodepools_cost_total", nodepool=scope.name))
        assert 0 < cost < 10
        ready = {"nodepool": scope.name, "phase": "Ready"}
        assert await wait_until(lambda: own_product.metric_value("tenure_nodeclaims", **ready)) == 1
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_instances_alive(0))
        nodepool_label = {"nodepool": scope.name}
        await wait_until(lambda: own_product.metric_value("karpenter_nodeclaims_terminated_total", **nodepool_label))
    async with aiohttp.ClientSession() as session, session.get(own_product.worker.metrics) as response:
        text = await response.text()
    exported = {one.name: one for one in text_string_to_metric_families(text)}
    documented = {one.name.removesuffix("_total") if one.kind == "counter" else one.name: one for one in METRICS}
    own_metrics = {name: one for name, one in exported.items() if name.startswith(("tenure_", "karpenter_"))}
    assert own_metrics.keys() <= documented.keys()
    assert {family for family, one in documented.items() if one.name in LIFECYCLE_METRICS} <= own_metrics.keys()
    for name, family in own_metrics.items():
        assert family.type == documented[name].kind, name
        assert labels_of(family) <= {frozenset(documented[name].labels)}, name
    assert {name for name, kind, _ in TEMPORALS if kind != "counter"} <= exported.keys()
    assert all(exported[name].type == kind for name, kind, _ in TEMPORALS if name in exported)


def labels_of(family: Metric) -> set[frozenset[str]]:
    """Without labels that Prometheus and the SDK add."""
    added = {"le", "namespace", "task_queue", "activity_type", "workflow_type"}
    return {frozenset(one.labels.keys() - added) for one in family.samples}
