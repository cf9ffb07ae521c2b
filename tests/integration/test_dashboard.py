"""The panels of the Grafana dashboard have data in a real Prometheus that scrapes a worker.

Prometheus is Debian's package, or any other on the PATH.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tenure.apis.labels import PAUSE
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.ports import Ports
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import pod_disruption_budget
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import send_spot_warning
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import InstalledProduct
from tools.metrics.dashboard import FILE
from tools.metrics.prometheus import SCRAPE_SECONDS, Prometheus
from workflows import ids

DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text())
PANELS: Final[dict[str, list[str]]] = {
    panel["title"]: [target["expr"] for target in panel["targets"]]
    for panel in DASHBOARD["panels"]
    if panel.get("targets")
}
TITLES: Final = set(PANELS)
REPAIRED_WITHIN_SECONDS: Final = 150.0
"""A terminated workflow is found within two minutes."""
INCIDENTS: Final = {
    "Nodes that need attention, by code",
    "Launch failures",
    "Missed deadlines",
    "Paused",
    "Blocked drains",
    "Hooks",
    "Workflows that were not running",
    "Throttled by AWS",
    "Failed activity attempts",
}
"""Panels without data while no fault, pause or hook occurs."""
RARE: Final = {"Pods not bound to their node"}
"""Panels that neither test fills."""
OF_A_BUG: Final = "temporal_workflow_task_execution_failed"
"""A metric that has no series without a bug."""
STARTUP_TAINT: Final = "node.cilium.io/agent-not-ready"
OWN_TYPE: Final = "r5.large"
"""No other shared test launches it, since it is unavailable for three minutes after these tests."""


@pytest.fixture
async def prometheus(product: InstalledProduct, tmp_path: Path) -> AsyncIterator[Prometheus]:
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not on the PATH: apt-get install prometheus")
    ports = Ports()
    server = Prometheus(tmp_path, ports.reserve(), product.worker.metrics)
    await server.process.start()
    yield server
    await server.process.stop()
    ports.close()


def test_all_panels_are_covered() -> None:
    assert TITLES > INCIDENTS | RARE and len(TITLES - RARE) > 20


async def test_every_panel_has_data(product: InstalledProduct, prometheus: Prometheus) -> None:
    async with product.scope("dashboard", types=(OWN_TYPE,), capacity_type="spot") as scope:
        (claim,) = await scope.run_pods(1)
        await drift(scope, claim)
        (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        await interrupt(scope, claim)
        # The rate of a counter needs a value before the increase.
        (replacement,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        await interrupt(scope, replacement)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_instances_alive(0))
        await wait_until(lambda: assert_panels_have_data(prometheus, TITLES - INCIDENTS - RARE))


async def test_every_panel_of_an_incident_has_data(product: InstalledProduct, prometheus: Prometheus) -> None:
    taints = [{"key": STARTUP_TAINT, "value": "true", "effect": "NoSchedule"}]
    async with product.scope("incidents", types=(OWN_TYPE,), startup_taints=taints, after="Never") as scope:
        hook = {"name": "closed", "http": {"url": "http://127.0.0.1:1"}, "timeout": "5s"}
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, hooks={"beforeDrain": [hook]}))
        scope.inject_aws_fault("throttle", "CreateFleet", times=1)
        scope.inject_aws_fault("5xx", "CreateFleet", times=2)
        await scope.create_deployment(1)
        name = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(name, "InitializationOverdue"))
        await scope.remove_taints((await scope.nodeclaim_workflow(name)).node_name, STARTUP_TAINT)
        await wait_until(lambda: scope.assert_pods_running(1))
        await pause_and_resume(scope)
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_blocked_by(name, "PodDisruptionBudget"))
        scope.inject_aws_fault("no-capacity", "CreateFleet")
        await scope.scale_deployment(2)
        coordinator = ids.nodepool(product.sandbox.plan.cluster_name, scope.name)
        await product.temporal.get_workflow_handle(coordinator).terminate("incident")
        await wait_until(lambda: assert_panels_have_data(prometheus, INCIDENTS), seconds=REPAIRED_WITHIN_SECONDS)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def pause_and_resume(scope: ClusterScope) -> None:
    """Long enough for several scrapes."""
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
    for text in (f"until={until}, by=ann, reason=an incident", None):
        await scope.product.patch(scope.pool_path, {"metadata": {"annotations": {PAUSE: text}}})
        await asyncio.sleep(5 * SCRAPE_SECONDS)


async def drift(scope: ClusterScope, claim: Object) -> None:
    """Until a disruption command has replaced the node."""
    labels = {"example.com/revision": "2"}
    await scope.product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": labels}}}})
    await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
    await wait_until(lambda: scope.assert_pods_running(1))


async def interrupt(scope: ClusterScope, claim: Object) -> None:
    """Until the pod runs on another node."""
    send_spot_warning(scope.product, claim)
    await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
    await wait_until(lambda: scope.assert_pods_running(1))


async def assert_panels_have_data(prometheus: Prometheus, titles: set[str]) -> None:
    pairs = [(title, query) for title, found in PANELS.items() for query in found if title in titles]
    queries = [(title, query) for title, query in pairs if OF_A_BUG not in query]
    results = await asyncio.gather(*(prometheus.query_range(query) for _, query in queries))
    found = zip(queries, results, strict=True)
    assert [one for one, series in found if not any(each.points for each in series)] == []
