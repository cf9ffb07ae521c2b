"""Karpenter for adoption tests: its Deployment with a leader Lease, and objects exactly as Karpenter v1 writes them.

A conversion replaces the NodeClaims of a scope's nodes by Karpenter's, removes Tenure's annotations and tags from
Nodes, NodePools, classes and instances, and deletes all workflows.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODES, WORKLOADS
from tenure.model.base import instance_id_of
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import MERGE, DedicatedProduct
from workflows import ids

NAME: Final = "karpenter-leader-election"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"
HOLDER: Final = "karpenter-7d9c4f2a"
LEASE_DURATION_SECONDS: Final = 10
"""Seconds. The Lease is renewed every second, and later on a busy machine."""
RENEW_INTERVAL_SECONDS: Final = 1.0
PROFILE: Final = "demo_4067990795380418201"
TEMPLATE: Final = "karpenter.k8s.aws/8191247135283937043"
HASH_ANNOTATIONS: Final = {
    labels.NODEPOOL_HASH: "13971920214979852468",
    labels.NODEPOOL_HASH_VERSION: "v3",
    labels.NODECLASS_HASH: "11148166120438674859",
    labels.NODECLASS_HASH_VERSION: "v6",
}
CHART_ENVIRONMENT: Final = {
    "KUBERNETES_MIN_VERSION": "1.19.0-0",
    "KARPENTER_SERVICE": "karpenter",
    "LOG_LEVEL": "info",
    "LOG_OUTPUT_PATHS": "stdout",
    "LOG_ERROR_OUTPUT_PATHS": "stderr",
    "METRICS_PORT": "8080",
    "HEALTH_PROBE_PORT": "8081",
    "FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false",
    "BATCH_MAX_DURATION": "10s",
    "BATCH_IDLE_DURATION": "1s",
    "VM_MEMORY_OVERHEAD_PERCENT": "0.075",
    "RESERVED_ENIS": "0",
}
"""Environment that Karpenter's chart sets, besides the cluster's name."""
KARPENTER_DEPLOYMENT_PATH: Final = WORKLOADS["Deployment"].path("karpenter", namespace="kube-system")
TENURE_DEPLOYMENT_PATH: Final = WORKLOADS["Deployment"].path("tenure", namespace="tenure")


def deployment(namespace: str, name: str, replicas: int, image: str, environment: Mapping[str, str]) -> Object:
    """As in both charts, its pods do not tolerate nodes of NodePools, so they stay Pending here."""
    match_labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name}
    no_nodepool = {"matchExpressions": [{"key": labels.NODEPOOL, "operator": "DoesNotExist"}]}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [no_nodepool]}}
    variables = [{"name": key, "value": value} for key, value in environment.items()]
    main = {"name": "controller" if name == "karpenter" else name, "image": image, "env": variables}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": match_labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": match_labels},
            "template": {
                "metadata": {"labels": match_labels},
                "spec": {"affinity": {"nodeAffinity": node_affinity}, "containers": [main]},
            },
        },
    }


SetLeading = Callable[[bool], Awaitable[None]]
"""Called repeatedly with whether Karpenter should lead."""


@asynccontextmanager
async def karpenter_and_tenure_deployed(
    product: DedicatedProduct, set_leading: SetLeading | None = None
) -> AsyncIterator[None]:
    """Both Deployments: Karpenter's with two replicas, Tenure's with none. The test replaces their pods. While
    Karpenter has replicas, its Lease is renewed or `set_leading` is called; while Tenure has, a worker runs.
    """
    name = product.sandbox.plan.cluster_name
    image = "public.ecr.aws/karpenter/controller:1.14.1"
    await product.kube.apply(
        deployment("kube-system", "karpenter", 2, image, {"CLUSTER_NAME": name, **CHART_ENVIRONMENT})
    )
    await product.kube.apply(deployment("tenure", "tenure", 0, "tenure:1", {"CLUSTER_NAME": name}))
    lead = _run_leader(product, set_leading or (lambda is_leading: _renew_if_leading(product, is_leading)))
    tasks = [asyncio.create_task(one) for one in (lead, _run_tenure(product))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for path in (KARPENTER_DEPLOYMENT_PATH, TENURE_DEPLOYMENT_PATH, LEASE):
            await product.delete(path)


async def desired_replicas(product: DedicatedProduct, path: str) -> int:
    return int((await product.kube.request("GET", path))["spec"]["replicas"])


async def _run_leader(product: DedicatedProduct, set_leading: SetLeading) -> None:
    while True:
        await set_leading(await desired_replicas(product, KARPENTER_DEPLOYMENT_PATH) > 0)
        await asyncio.sleep(RENEW_INTERVAL_SECONDS)


async def _renew_if_leading(product: DedicatedProduct, is_leading: bool) -> None:
    if is_leading:
        await renew_lease(product)


async def _run_tenure(product: DedicatedProduct) -> None:
    while True:
        should_run = await desired_replicas(product, TENURE_DEPLOYMENT_PATH) > 0
        is_running = bool(product.workers) and product.worker.is_running
        if should_run and not is_running:
            await product.ensure_worker()
        elif is_running and not should_run:
            await product.stop_workers()
        await asyncio.sleep(0.5)


async def renew_lease(product: DedicatedProduct) -> None:
    """Renew the leader's Lease once."""
    spec = {
        "holderIdentity": HOLDER,
        "leaseDurationSeconds": LEASE_DURATION_SECONDS,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
    await product.kube.apply(lease | {"metadata": {"name": NAME, "namespace": "kube-system"}})


class KarpenterConversion:
    """Converts a scope's nodes as if Karpenter had created them. No worker may run."""

    def __init__(self, scope: ClusterScope, node_class: str) -> None:
        self.scope, self.product = scope, scope.product
        self.class_path = EC2_NODE_CLASSES.path(node_class)
        self._node_class = node_class

    async def convert_nodes(self) -> list[str]:
        """Returns the names of Karpenter's NodeClaims."""
        claims = await self.scope.nodeclaims()
        await self._delete_workflows(claims)
        await self._annotate_nodepool_and_nodeclass()
        objects = []
        for number, claim in enumerate(claims):
            objects.append(await self._convert_nodeclaim(claim, f"{self.scope.name}-x7k{number}q"))
        await asyncio.to_thread(self._create_launch_template, claims[0]["status"]["imageID"])
        return objects

    async def _delete_workflows(self, claims: list[Object]) -> None:
        """Delete all workflows of the scope."""
        cluster = self.product.sandbox.plan.cluster_name
        nodeclaim_ids = [ids.nodeclaim(cluster, one["metadata"]["name"], one["metadata"]["uid"]) for one in claims]
        for one in (*nodeclaim_ids, ids.nodepool(cluster, self.scope.name), ids.nodeclass(cluster, self._node_class)):
            await wait_until(partial(self._assert_workflow_deleted, one))

    async def _assert_workflow_deleted(self, workflow_id: str) -> None:
        """Temporal deletes a workflow some time after the request, so retry."""
        client = self.product.temporal
        request = DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
        )
        try:
            await client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return
            raise
        raise AssertionError(f"{workflow_id} is still there")

    async def _annotate_nodepool_and_nodeclass(self) -> None:
        pool = await self.product.kube.request("GET", self.scope.pool_path)
        hashes = {key: HASH_ANNOTATIONS[key] for key in (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)}
        await self._annotate(self.scope.pool_path, pool, hashes)
        node_class = await self.product.kube.request("GET", self.class_path)
        hashes = {key: HASH_ANNOTATIONS[key] for key in (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION)}
        await self._annotate(self.class_path, node_class, hashes)
        await asyncio.to_thread(self._create_instance_profile, node_class["metadata"]["uid"])
        await self._patch_status(self.class_path, {"instanceProfile": PROFILE})

    async def _convert_nodeclaim(self, claim: Object, name: str) -> str:
        """Create Karpenter's NodeClaim for the same instance, make it the Node's owner, and delete Tenure's."""
        old, node = claim["metadata"]["name"], NODES.path(claim["status"]["nodeName"])
        pool = await self.product.kube.request("GET", self.scope.pool_path)
        created = await self.product.kube.request(
            "POST",
            NODE_CLAIMS.path(),
            {
                "apiVersion": labels.NODEPOOL_API_VERSION,
                "kind": "NodeClaim",
                "metadata": {
                    "name": name,
                    "generateName": f"{self.scope.name}-",
                    "labels": claim["metadata"]["labels"],
                    "annotations": self._karpenter_annotations(),
                    "finalizers": [labels.TERMINATION_FINALIZER],
                    "ownerReferences": [_owner_reference(pool)],
                },
                "spec": claim["spec"],
            },
        )
        status_fields = ("providerID", "imageID", "nodeName", "capacity", "allocatable")
        status = {key: claim["status"][key] for key in status_fields}
        await self._patch_status(NODE_CLAIMS.path(name), {**status, "conditions": _conditions()})
        await self._annotate(node, await self.product.kube.request("GET", node), self._karpenter_annotations())
        await self.product.patch(node, {"metadata": {"ownerReferences": [_owner_reference(created)]}})
        await self.product.patch(NODE_CLAIMS.path(old), {"metadata": {"finalizers": None}})
        await self.product.delete(NODE_CLAIMS.path(old))
        instance = instance_id_of(claim["status"]["providerID"])
        await asyncio.to_thread(self._retag, instance, name, claim["status"]["nodeName"])
        return name

    def _karpenter_annotations(self) -> dict[str, str]:
        return {
            **HASH_ANNOTATIONS,
            labels.INSTANCE_PROFILE_NAME: PROFILE,
            labels.TAGGED: "true",
            labels.CLUSTER_NAME_TAGGED: "true",
            labels.NODECLAIM_MIN_VALUES_RELAXED: "false",
        }

    async def _annotate(self, path: str, found: Object, annotations: Mapping[str, str]) -> None:
        """Set these annotations, and remove Tenure's."""
        tenure_keys = [key for key in found["metadata"].get("annotations") or {} if key.startswith(labels.TENURE_GROUP)]
        await self.product.patch(path, {"metadata": {"annotations": dict.fromkeys(tenure_keys) | dict(annotations)}})

    async def _patch_status(self, path: str, status: Object) -> None:
        await self.product.kube.request("PATCH", f"{path}/status", {"status": status}, MERGE)

    def _retag(self, instance: str, claim: str, node: str) -> None:
        ec2 = self.product.admin_client("ec2")
        tags = self.instance_tags(instance)
        tenure_keys = [{"Key": key} for key in tags if key.startswith(labels.TENURE_GROUP)]
        if tenure_keys:
            ec2.delete_tags(Resources=[instance], Tags=tenure_keys)
        names = {labels.TAG_NODECLAIM: claim, labels.TAG_NAME: node}
        ec2.create_tags(Resources=[instance], Tags=[{"Key": key, "Value": value} for key, value in names.items()])

    def instance_tags(self, instance: str) -> dict[str, str]:
        response = self.product.admin_client("ec2").describe_instances(InstanceIds=[instance])
        return {one["Key"]: one["Value"] for one in response["Reservations"][0]["Instances"][0].get("Tags", [])}

    def _create_instance_profile(self, uid: str) -> None:
        """Karpenter's name of a profile has a hash with a random part, so it cannot be computed again."""
        plan, iam = self.product.sandbox.plan, self.product.admin_client("iam")
        tags = {**self._owner_tags(), labels.REGION: plan.region}
        with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
            iam.create_instance_profile(
                InstanceProfileName=PROFILE,
                Path=f"/karpenter/{plan.region}/{plan.cluster_name}/{uid}/",
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
            iam.add_role_to_instance_profile(
                InstanceProfileName=PROFILE, RoleName=f"KarpenterNodeRole-{plan.cluster_name}"
            )

    def _create_launch_template(self, image: str) -> None:
        tags = {**self._owner_tags(), labels.TAG_NODEPOOL: self.scope.name}
        tag_list: Any = [{"Key": key, "Value": value} for key, value in tags.items()]
        self.product.admin_client("ec2").create_launch_template(
            LaunchTemplateName=TEMPLATE,
            LaunchTemplateData={"ImageId": image},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list}],
        )

    def _owner_tags(self) -> dict[str, str]:
        cluster = self.product.sandbox.plan.cluster_name
        return {
            f"{labels.TAG_CLUSTER_PREFIX}{cluster}": "owned",
            labels.TAG_EKS_CLUSTER_NAME: cluster,
            labels.TAG_NODECLASS: self._node_class,
        }

    def delete_launch_template(self) -> None:
        """The instance profile is deleted with its class."""
        self.product.admin_client("ec2").delete_launch_template(LaunchTemplateName=TEMPLATE)


def _owner_reference(of: Object) -> Object:
    return {
        "apiVersion": of["apiVersion"],
        "kind": of["kind"],
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }


def _conditions() -> list[Object]:
    """Conditions with reason and empty message, as Karpenter's condition library writes them."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    types = (*labels.NODECLAIM_CONDITIONS, labels.CONSISTENT_STATE_FOUND, labels.READY)
    stamp = {"status": "True", "message": "", "lastTransitionTime": now, "observedGeneration": 1}
    return [{"type": one, "reason": one, **stamp} for one in types]
