"""Adoption of a cluster from Karpenter's own controller: dry run, handover, handback, and a second adoption. No node
drifts or is replaced.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.cli.sandbox.worker_process import clean_environment
from tenure.kube.client.resources import EC2_NODE_CLASSES, NAMESPACES, NODE_CLAIMS, NODE_POOLS
from tests.support.product.cluster_scope import ClusterScope, condition_status, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.karpenter import (
    HASH_ANNOTATIONS,
    KARPENTER_DEPLOYMENT_PATH,
    LEADER_LEASE_PATH,
    TENURE_DEPLOYMENT_PATH,
    desired_replicas,
    karpenter_and_tenure_deployed,
)
from tests.support.product.objects import Object, node_class
from tests.support.product.product import DedicatedProduct

CLASS = "of-karpenter"
READER = "adopter"
"""May read everything in Kubernetes and AWS, and write nothing."""
QUIET_SECONDS = 25.0
"""Karpenter checks all nodes for drift when it starts, and starts disruptions every 10 s."""


async def test_cluster_is_adopted_from_karpenter_and_handed_back(product: DedicatedProduct) -> None:
    await product.stop_workers()
    await product.kube.apply(node_class(CLASS))
    try:
        async with product.scope("adopted", of_class=CLASS, after="Never") as scope:
            async with karpenter_and_tenure_deployed(product):
                claims = object_names(await scope.run_pods(2))
                await _run_adoption(KarpenterAdoption(product, scope, claims))
            await product.ensure_worker()
    finally:
        await product.delete(EC2_NODE_CLASSES.path(CLASS))
    await wait_until(lambda: product.assert_deleted(EC2_NODE_CLASSES.path(CLASS)))


async def _run_adoption(adopter: "KarpenterAdoption") -> None:
    product, scope = adopter.product, adopter.scope
    await wait_until(adopter.assert_karpenter_leads)
    templates = await product.launch_template_names()
    before = await adopter.snapshot()
    await adopter.assert_dry_run_writes_nothing()
    await adopter.kill_during_handover()
    result = await adopter.run_cli("--yes", "--settle", "8s")
    assert result["nodeClaims"] == 2 and "none drifted, none was replaced" in result["message"], result
    await adopter.assert_unchanged_throughout(before)
    await adopter.assert_adopted()
    assert set(templates) <= set(await product.launch_template_names())
    by_tenure = await adopter.launch_another()

    result = await adopter.run_cli("--back", "--yes")
    assert result["nodeClaims"] == 3 and result["left"] == [], result
    assert not await product.watch_hosts() and await desired_replicas(product, TENURE_DEPLOYMENT_PATH) == 0
    assert await desired_replicas(product, KARPENTER_DEPLOYMENT_PATH) == 2
    before = await adopter.snapshot()
    await wait_until(adopter.assert_hashed_by_karpenter)
    await adopter.assert_unchanged_throughout(before)
    await adopter.launch_another()
    await product.delete(NODE_CLAIMS.path(by_tenure))
    await wait_until(lambda: product.assert_deleted(NODE_CLAIMS.path(by_tenure)))
    await wait_until(lambda: scope.assert_pods_running(4))
    await wait_until(lambda: scope.assert_nodes_initialized(4))
    await wait_until(lambda: scope.assert_instances_alive(4))

    adopter.claims = object_names(await scope.nodeclaims())
    before = await adopter.snapshot()
    result = await adopter.run_cli("--yes", "--settle", "5s")
    assert result["nodeClaims"] == 4 and "none drifted, none was replaced" in result["message"], result
    await adopter.assert_unchanged_throughout(before, seconds=3)


class KarpenterAdoption:
    """Runs `tenure adopt` as a user does. `claims`: the names of NodeClaims that must not change."""

    def __init__(self, product: DedicatedProduct, scope: ClusterScope, claims: list[str]) -> None:
        self.product, self.scope, self.claims = product, scope, claims
        self._class_path = EC2_NODE_CLASSES.path(CLASS)

    def start_cli(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tenure", "adopt", "-o", "json", *arguments],
            env=clean_environment() | self.product.own_sandbox.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run_cli(self, *arguments: str, **environment: str) -> Object:
        """Returns the command's output; its exit code must be 0."""
        child = self.start_cli(*arguments, **environment)
        out, errors = await asyncio.to_thread(child.communicate)
        assert child.returncode == 0, f"{child.returncode}: {errors}\n{out}"
        result: Object = json.loads(out)
        return result

    async def snapshot(self) -> dict[str, Any]:
        """Identities of objects that must not be replaced, and the instance profile of the class."""
        claims = [one for one in await self.scope.nodeclaims() if one["metadata"]["name"] in self.claims]
        hosts = {one["status"]["nodeName"] for one in claims}
        nodes = [one for one in await self.scope.nodes() if one["metadata"]["name"] in hosts]
        pods = [one for one in await self.scope.pods() if one["spec"].get("nodeName") in hosts]
        found = await self.product.kube.request("GET", self._class_path)
        return {
            "claims": sorted(one["metadata"]["uid"] for one in claims),
            "nodes": sorted(one["metadata"]["uid"] for one in nodes),
            "pods": sorted(one["metadata"]["uid"] for one in pods),
            "instances": sorted(one["status"]["providerID"] for one in claims),
            "profile": found["status"]["instanceProfile"],
        }

    async def assert_unchanged(self, before: dict[str, Any]) -> None:
        assert await self.snapshot() == before
        for claim in await self.scope.nodeclaims():
            statuses = {one: condition_status(claim, one) for one in (labels.DRIFTED, labels.DISRUPTION_REASON)}
            assert "True" not in statuses.values() and "deletionTimestamp" not in claim["metadata"], (statuses, claim)

    async def assert_unchanged_throughout(self, before: dict[str, Any], seconds: float = QUIET_SECONDS) -> None:
        await assert_throughout(lambda: self.assert_unchanged(before), seconds=seconds)

    async def launch_another(self) -> str:
        """Scale up by one pod, which needs a node. Returns the name of its NodeClaim, which counts from then on."""
        pods = len(self.claims) + 1
        await self.scope.scale_deployment(pods)
        await wait_until(lambda: self.scope.assert_pods_running(pods))
        claims = object_names(await wait_until(lambda: self.scope.assert_nodes_initialized(pods)))
        (launched,) = set(claims) - set(self.claims)
        self.claims = claims
        return launched

    async def assert_dry_run_writes_nothing(self) -> None:
        """With read-only rights, the dry run tries no write and predicts no change to the two nodes."""
        versions, written = await self._resource_versions(), len(self.product.own_sandbox.written)
        self.product.aws.bind_key(READER, [_READS])
        kubeconfig = await self._create_reader_kubeconfig()
        keys = {"AWS_ACCESS_KEY_ID": READER, "AWS_SECRET_ACCESS_KEY": READER}
        preview = await self.run_cli("--dry-run", KUBECONFIG=str(kubeconfig), **keys)
        self.product.aws.release_key(READER)
        assert preview["ready"], [one for one in preview["findings"] if one["level"] == "problem"]
        own_nodeclaims = [one for one in preview["nodeClaims"] if one["nodeClaim"] in self.claims]
        statuses = {(one["phase"], one["drift"] is None, one["judged"], one["foundByTags"]) for one in own_nodeclaims}
        assert len(own_nodeclaims) == 2 and statuses == {("Ready", True, True, True)}, own_nodeclaims
        profile = (await self.snapshot())["profile"]
        assert preview["instanceProfiles"][CLASS] == {"name": profile, "there": True, "whose": "Karpenter's"}
        assert preview["leases"][0]["holder"] and preview["karpenter"]["replicas"] == 2, preview
        assert preview["wouldLaunch"]["nodes"] == [] and "commands" not in preview["wouldDisrupt"], preview
        assert {one["variable"]: one["outcome"] for one in preview["settings"]}["BATCH_IDLE_DURATION"] == "same"
        assert await self._resource_versions() == versions
        assert self.product.own_sandbox.written[written:] == [], "something was written to the API server"
        denied = [one["action"] for one in self.product.aws.list_denials() if one["access_key"] == READER]
        assert denied == [], f"denied AWS calls: {denied}"

    async def kill_during_handover(self) -> None:
        """Kill the command once Karpenter is scaled to zero; the next run continues from there."""
        child = self.start_cli("--yes")
        await wait_until(self._assert_karpenter_stopped)
        child.kill()
        await asyncio.to_thread(child.communicate)

    async def assert_adopted(self) -> None:
        """NodeClaims have current hashes, are in phase Ready, and are not paused."""
        for claim in await self.scope.nodeclaims():
            annotations = claim["metadata"]["annotations"]
            assert (
                annotations[labels.NODEPOOL_HASH_VERSION] == annotations[labels.NODECLASS_HASH_VERSION] == HASH_VERSION
            )
        await wait_until(self._assert_all_ready)
        await wait_until(self._assert_not_paused)

    async def _assert_all_ready(self) -> None:
        phases = {
            nodeclaim.name: nodeclaim.phase for nodeclaim in await self.scope.nodeclaim_workflows() if nodeclaim.open
        }
        assert phases == dict.fromkeys(self.claims, "Ready"), phases

    async def assert_hashed_by_karpenter(self) -> None:
        """Karpenter has written its hashes to all NodeClaims, so that it compares them from then on."""
        expected = await self._hashes(self.scope.pool_path) | await self._hashes(self._class_path)
        assert set(expected) == set(HASH_ANNOTATIONS) and HASH_VERSION not in expected.values(), expected
        for claim in self.claims:
            assert await self._hashes(NODE_CLAIMS.path(claim)) == expected, claim
        await self._assert_not_paused()

    async def _hashes(self, path: str) -> dict[str, str]:
        annotations = (await self.product.kube.request("GET", path))["metadata"].get("annotations") or {}
        return {key: value for key, value in annotations.items() if key in HASH_ANNOTATIONS}

    async def assert_karpenter_leads(self) -> None:
        lease = await self.product.find(LEADER_LEASE_PATH)
        assert lease and lease["spec"].get("holderIdentity"), lease

    async def _assert_karpenter_stopped(self) -> None:
        assert await desired_replicas(self.product, KARPENTER_DEPLOYMENT_PATH) == 0

    async def _assert_not_paused(self) -> None:
        found = await self.product.kube.request("GET", NAMESPACES.path("tenure"))
        assert labels.PAUSE not in (found["metadata"].get("annotations") or {})

    async def _resource_versions(self) -> dict[str, str]:
        """Resource versions of objects that a node controller writes; Nodes are also written by their kubelets."""
        kinds = (NODE_CLAIMS, NODE_POOLS, EC2_NODE_CLASSES)
        found = [one for kind in kinds for one in await self.product.items(kind.path())]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}

    async def _create_reader_kubeconfig(self) -> Path:
        """A kubeconfig with the rights to get and list, through the proxy that records writes."""
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        group = "rbac.authorization.k8s.io"
        await self.scope.apply_manifest(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": "default"}}
        )
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": READER}}
        await self.scope.apply_manifest(role | {"rules": [everything]})
        await self.scope.apply_manifest(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": READER},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
                "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "default"}],
            }
        )
        sandbox = self.product.own_sandbox
        return await asyncio.to_thread(sandbox.service_account_kubeconfig, "default", READER, through_proxy=True)


_READS = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["ec2:Describe*", "ssm:Get*", "pricing:Get*", "eks:Describe*", "iam:Get*", "iam:List*"],
            "Resource": "*",
        }
    ],
}
