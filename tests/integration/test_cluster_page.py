"""The cluster page shows nodes, pending pods, commands, the plan, other blockers and AWS events of a running worker."""

from typing import Any

from tenure.cli.page.sections import cluster_sections
from tenure.cli.temporal_client import Connection
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import nodeclaim_name, send_spot_warning
from tests.support.product.objects import pending_pod
from tests.support.product.product import InstalledProduct


class ShownPage:
    """The rows of one scope."""

    def __init__(self, scope: ClusterScope) -> None:
        product, self._scope = scope.product, scope
        connection = Connection(
            product.sandbox.temporal_address,
            "default",
            product.sandbox.plan.cluster_name,
            ui=product.sandbox.temporal_ui,
        )
        self._sections = cluster_sections(product.temporal, connection)

    async def read(self, section: str) -> dict[str, Any]:
        return await self._sections[section].read()

    async def assert_node(self, name: str, phase: str) -> None:
        nodes = {one["nodeClaim"]: one for one in (await self.read("nodes"))["nodes"]}
        assert nodes[name]["phase"] == phase and nodes[name]["nodePool"] == self._scope.name
        assert nodes[name]["pricePerHour"] and nodes[name]["workflowUrl"].startswith("http")

    async def assert_pod(self, name: str, code: str) -> None:
        groups = {one["pod"]: one for one in (await self.read("pods"))["groups"]}
        assert groups[f"default/{name}"]["verdict"]["code"] == code, groups

    async def assert_event(self, name: str, kind: str) -> None:
        found = [one for one in (await self.read("events"))["events"] if one["nodeClaim"] == name]
        assert [one["kind"] for one in found] == [kind] and found[0]["done"]


async def test_page_shows_node_pending_pod_and_spot_interruption(product: InstalledProduct) -> None:
    async with product.scope("page") as scope:
        page = ShownPage(scope)
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await wait_until(lambda: page.assert_node(name, "Ready"))
        huge = pending_pod(scope.name, "huge", cpu="1000")
        await scope.apply_manifest(huge)
        await wait_until(lambda: page.assert_pod(huge["metadata"]["name"], "NoInstanceTypeFits"))
        assert (await page.read("plan"))["nodes"] >= 1
        assert set(await page.read("attention")) == {"late", "paused", "invalidObjects"}
        assert set(await page.read("commands")) == {"commands"}
        await product.delete(await product.kube.path_of(huge))
        send_spot_warning(product, claim)
        await wait_until(lambda: page.assert_event(nodeclaim_name(claim), "spotInterruption"))
