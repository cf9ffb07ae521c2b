"""A test's own part of the cluster: a NodePool with its pods, NodeClaims, instances, workflows and faults.

Reads are live. Assertions are coroutines, which `wait_until` repeats. At its end the scope deletes all its objects and
asserts that none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from temporalio.client import WorkflowHandle

from tenure.apis import labels
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.kube.client.resources import EVENTS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.verdict import describe_blocker
from tenure.sandbox.fault_proxy import Fault as ApiFault
from tenure.sandbox.nodes.fault_rules import InjectedFault, Match, Rule
from tests.support.product.eventually import query_state, wait_until
from tests.support.product.objects import OF_TEST, TWO_CPUS, Object, deployment, node_claim, node_pool
from tests.support.product.shared_sandbox import FaultRule
from workflows import ids

if TYPE_CHECKING:
    from tests.support.product.product import InstalledProduct

DISRUPTED = f"{labels.DISRUPTED_TAINT_KEY}:{labels.NO_SCHEDULE}"
ALIVE = ("pending", "running", "stopping", "stopped")
LOGGED_STEPS = ("planned", "watch interrupted", "watch hosted", "watch released")
DESCRIBED_LOG_LINES = 8


class ClusterScope:
    """An async context manager that creates the NodePool at entry."""

    def __init__(self, product: InstalledProduct, name: str, pool: dict[str, Any]) -> None:
        self.product, self.name = product, name
        self.pool_path = NODE_POOLS.path(name)
        self._pool = pool
        self._paths: list[str] = []
        self._rules: list[Rule] = []
        self._aws_rules: list[str] = []
        self._api_rules: list[FaultRule] = []
        self._has_faults = False
        """Whether the test injected any fault, so that a node may be launched in vain."""

    async def __aenter__(self) -> Self:
        await self.apply_manifest(node_pool(self.name, **self._pool))
        return self

    async def __aexit__(self, *error_info: object) -> None:
        """Delete all objects. After a failed test, the deletion is not asserted."""
        if isinstance(error_info[1], Exception):
            error_info[1].add_note(await self.describe())
        await self._remove_all_faults()
        is_settled = all(pod["spec"].get("nodeName") for pod in await self.pods())
        for path in reversed(self._paths):
            await self.product.delete(path)
        for claim in await self.nodeclaims():
            await self.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        if not any(error_info):
            await self._wait_until_removed()
            if is_settled and not self._has_faults:
                self.product.faultless_pools.add(self.name)

    async def _wait_until_removed(self) -> None:
        try:
            await wait_until(self.assert_all_removed)
        except Exception as error:
            error.add_note(await self.describe())
            raise

    # --- changes ---

    async def apply_manifest(self, manifest: Object) -> Object:
        """Apply the manifest, and delete it at the scope's end."""
        applied = await self.product.kube.apply(manifest)
        self._paths.append(await self.product.kube.path_of(manifest))
        return applied

    async def create_deployment(self, replicas: int, name: str = "", **pod: Any) -> str:
        """Create a Deployment for the NodePool. `pod` is merged into the pods' spec. Returns its name."""
        deployment_name = name or self.name
        await self.apply_manifest(deployment(deployment_name, pool=self.name, replicas=replicas, pod=pod))
        return deployment_name

    async def scale_deployment(self, replicas: int, name: str = "") -> None:
        path = f"/apis/apps/v1/namespaces/default/deployments/{name or self.name}/scale"
        await self.product.patch(path, {"spec": {"replicas": replicas}})

    async def run_pods(self, pods: int, **pod: Any) -> list[Object]:
        """Run this number of pods, each on its own initialized node. Returns the NodeClaims."""
        await self.create_deployment(pods, **pod)
        await wait_until(lambda: self.assert_pods_running(pods))
        return await wait_until(lambda: self.assert_nodes_initialized(pods))

    async def replace_pod(self) -> None:
        """Delete the only pod; its Deployment creates another."""
        (pod,) = await self.pods()
        await self.product.delete(PODS.path(pod["metadata"]["name"], namespace="default"))

    async def remove_taints(self, node: str, key: str) -> None:
        found = await self.product.kube.request("GET", NODES.path(node))
        remaining = [taint for taint in found["spec"].get("taints") or () if taint["key"] != key]
        await self.product.patch(NODES.path(node), {"spec": {"taints": remaining}})

    async def report_kubelet_ready(self, node: str) -> None:
        """Set Ready for a node whose simulated kubelet would take very long."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready_condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "posting ready status",
        }
        timestamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.product.patch_status(NODES.path(node), {"conditions": [ready_condition | timestamps]})

    async def create_standalone_nodeclaim(self) -> str:
        """Create a NodeClaim without NodePool. Returns its name."""
        name = f"{self.name}-hand"
        await self.apply_manifest(node_claim(name))
        return name

    async def inject_node_fault(
        self, fault: InjectedFault, *, node: str = "", instance_type: str = "", count: int | None = None
    ) -> Rule:
        """The fault affects this scope's instances, those of one instance type, or one node."""
        match = Match(node_name=node) if node else Match(nodepool=self.name, instance_type=instance_type)
        rule = await self.product.nodes.add(fault, match=match, count=count)
        self._rules.append(rule)
        self._has_faults = True
        return rule

    async def remove_node_fault(self, rule: Rule) -> None:
        self._rules.remove(rule)
        await self.product.nodes.remove(rule)

    async def report_node_recovered(self, name: str) -> datetime:
        """Set Ready for a node with a fault. Returns the time."""
        now = datetime.now(UTC).replace(microsecond=0)
        ready_condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": now.isoformat(),
        }
        await self.product.patch_status(NODES.path(name), {"conditions": [ready_condition]})
        return now

    def inject_api_fault(self, fault: ApiFault, path: str, method: str) -> FaultRule:
        """The fault affects workers' requests whose path contains `path`."""
        rule = self.product.faults.add(fault, path, method=method)
        self._api_rules.append(rule)
        self._has_faults = True
        return rule

    def remove_api_fault(self, rule: FaultRule) -> None:
        self._api_rules.remove(rule)
        self.product.faults.remove(rule)

    def aws_fault_hits(self, rule_id: str) -> int:
        """Number of calls that the AWS fault affected."""
        (found,) = [rule["hits"] for rule in self.product.aws.list_faults() if rule["id"] == rule_id]
        return int(found)

    def inject_aws_fault(self, kind: str, action: str, value: str = "", **rule: Any) -> str:
        """The fault affects calls with this NodePool, or `value`, in a parameter Value or InstanceId. Returns the
        rule's id.
        """
        types = self._pool.get("types", (TWO_CPUS,))
        assert kind != "no-capacity" or TWO_CPUS not in types, f"{TWO_CPUS} would be unavailable to other tests"
        parameters = {"InstanceId": value} if value.startswith("i-") else {"Value": value or self.name}
        rule_id = self.product.aws.add_fault(kind, service="ec2", action=action, match=parameters, **rule)
        self._aws_rules.append(rule_id)
        self._has_faults = True
        return rule_id

    def remove_aws_fault(self, rule_id: str) -> None:
        self._aws_rules.remove(rule_id)
        self.product.aws.remove_fault(rule_id)

    async def _remove_all_faults(self) -> None:
        for rule in self._rules:
            await self.product.nodes.remove(rule)
        for rule_id in list(self._aws_rules):
            self.remove_aws_fault(rule_id)
        for api_rule in list(self._api_rules):
            self.remove_api_fault(api_rule)
        self._rules = []

    # --- reads ---

    async def nodeclaims(self) -> list[Object]:
        """NodeClaims of the NodePool and standalone ones, by creation time."""
        found = await self.product.items(NODE_CLAIMS.path(), label=f"{labels.NODEPOOL}={self.name}")
        found += await self.product.items(NODE_CLAIMS.path(), label=f"{OF_TEST}={self.name}-hand")
        return sorted(found, key=lambda claim: (claim["metadata"]["creationTimestamp"], claim["metadata"]["name"]))

    async def nodes(self) -> list[Object]:
        own_names = {claim["status"].get("nodeName") for claim in await self.nodeclaims() if claim.get("status")}
        found = await self.product.items(NODES.path())
        return [one for one in found if _object_name(one) in own_names or _label(one, labels.NODEPOOL) == self.name]

    async def pods(self, name: str = "") -> list[Object]:
        return await self.product.items(PODS.path(namespace="default"), label=f"app={name or self.name}")

    async def nodeclaim_workflows(self) -> list[NodeClaimSummary]:
        """Workflows of the NodePool's NodeClaims, including completed ones."""
        return await self.product.nodeclaim_workflows.list_all(f"TenureNodePool = '{self.name}'")

    async def nodeclaim_workflow(self, claim: str) -> NodeClaimSummary:
        """The NodeClaim's workflow from visibility, which lags."""
        found = [
            nodeclaim for nodeclaim in await self.product.nodeclaim_workflows.list_all() if nodeclaim.name == claim
        ]
        assert len(found) == 1, f"{claim} has {len(found)} workflows"
        return found[0]

    def launched_instances(self) -> list[str]:
        """All instances that EC2 ever launched for this scope."""
        own_names = [fleet for fleet in self.product.aws.list_fleets() if self._has_own_tag(fleet["tags"])]
        return [instance for fleet in own_names for instance in fleet["instances"]]

    def client_tokens(self) -> list[str]:
        """Client tokens of all launches."""
        return [fleet["client_token"] for fleet in self.product.aws.list_fleets() if self._has_own_tag(fleet["tags"])]

    def alive_instances(self) -> list[str]:
        """Instances that EC2 charges for."""
        found = self.product.aws.list_instances()["instances"]
        return [one["id"] for one in found if one["state"] in ALIVE and self._has_own_tag(one["tags"])]

    async def workflow_handle(self, claim: str) -> WorkflowHandle[Any, Any]:
        """Handle of the NodeClaim's workflow, once visibility lists it."""
        found = await wait_until(lambda: self.nodeclaim_workflow(claim))
        return self.product.temporal.get_workflow_handle(found.workflow_id)

    async def nodeclaim_state(self, claim: str) -> NodeClaimState:
        """State of the NodeClaim's workflow."""
        return await query_state(await self.workflow_handle(claim), NodeClaimState)

    async def describe(self) -> str:
        """Text about all NodeClaims, pods, events and provisioning, for the diagnosis of a failed test."""
        found = await self.nodeclaim_workflows()
        workflow_lines = [f"{one.name} {one.phase} on {one.node_name}: {one.blocked_by}" for one in found]
        claims = [
            f"{_object_name(one)}: {[condition_reason(one, kind) for kind in conditions_by_type(one)]}"
            for one in await self.nodeclaims()
        ]
        pods = [
            f"{_object_name(one)}: {one['status'].get('phase')} {one['spec'].get('nodeName')}, created "
            f"{one['metadata']['creationTimestamp']}, PodScheduled {condition_reason(one, 'PodScheduled')[:160]}"
            for one in await self.pods()
        ]
        names = [*(one.name for one in found), *(_object_name(one) for one in await self.pods())]
        events = [
            f"{name}: {event['reason']}: {event.get('message', '')[:160]}"
            for name in names
            for event in await self.events_of(name)
        ]
        logged = [
            f"{one['time']} {one['message']}: {one.get('fault', one.get('created', ''))}"
            for one in self.product.log_entries()
            if one["message"] in LOGGED_STEPS
        ]
        provisioning = await self.product.describe_provisioning()
        lines = ["workflows", *workflow_lines, "NodeClaims", *claims, "pods", *pods, "events", *events]
        log_heading = f"log at {datetime.now(UTC):%H:%M:%S}"
        return "\n".join([*lines, log_heading, *logged[-DESCRIBED_LOG_LINES:], *provisioning])

    async def events_of(self, about: str) -> list[Object]:
        """Kubernetes events about an object with this name."""
        return await self.product.items(EVENTS.path(namespace="default"), field=f"involvedObject.name={about}")

    def _has_own_tag(self, tags: dict[str, str]) -> bool:
        hand = f"{self.name}-hand"
        return tags.get(labels.TAG_NODEPOOL) == self.name or tags.get(labels.TAG_NODECLAIM) == hand

    # --- assertions ---

    async def assert_pods_running(self, pods: int, name: str = "") -> None:
        phases = [one["status"].get("phase") for one in await self.pods(name) if not _is_deleting(one)]
        assert phases == ["Running"] * pods, f"{name or self.name}: pods are {phases}"

    async def assert_nodes_initialized(self, count: int) -> list[Object]:
        claims = await self.nodeclaims()
        statuses = [condition_status(claim, "Initialized") for claim in claims]
        assert statuses == ["True"] * count, f"{self.name}: Initialized is {statuses}"
        return claims

    async def assert_one_node_launched(self) -> None:
        """Exactly one NodeClaim and one instance were ever launched."""
        await self.wait_until_nodes_launched(1)

    async def wait_until_nodes_launched(self, count: int) -> None:
        """Wait until exactly this number of NodeClaims and instances were ever launched; visibility lags."""
        await wait_until(lambda: self.assert_nodes_launched(count))

    async def assert_nodes_launched(self, count: int) -> None:
        nodeclaims = await self.nodeclaim_workflows()
        assert len(nodeclaims) == count, f"{self.name}: NodeClaims {[nodeclaim.name for nodeclaim in nodeclaims]}"
        launched = self.launched_instances()
        assert len(launched) == count, f"{self.name}: instances {launched}"

    async def assert_instances_alive(self, count: int) -> None:
        assert len(self.alive_instances()) == count, f"{self.name}: instances {self.alive_instances()}"

    async def assert_newest_nodeclaim(self, count: int) -> str:
        """There are this many NodeClaims. Returns the newest one's name."""
        found = [_object_name(claim) for claim in await self.nodeclaims()]
        assert len(found) == count, f"{self.name}: NodeClaims {found}"
        return found[-1]

    async def assert_nodeclaims_exist(self, names: Sequence[str]) -> None:
        existing = [_object_name(claim) for claim in await self.nodeclaims() if not _is_deleting(claim)]
        assert set(names) <= set(existing), f"{self.name}: of {names} only {existing} exist"

    async def assert_nodeclaim_deleting(self, claim: Object) -> None:
        found = await self.product.find(NODE_CLAIMS.path(_object_name(claim)))
        assert found is not None and _is_deleting(found), f"{_object_name(claim)} is not being deleted"

    async def assert_node_ready_status(self, name: str, *, ready: str) -> Object:
        """The condition Ready has this status. Returns the Node."""
        node = await self.product.kube.request("GET", NODES.path(name))
        assert condition_status(node, "Ready") == ready, f"{name}: {conditions_by_type(node).get('Ready')}"
        return node

    async def assert_node_not_ready(self, name: str) -> Object:
        """The Node is NotReady and has the taint that repels new pods."""
        node = await self.assert_node_ready_status(name, ready="False")
        assert labels.NOT_READY_TAINT_KEY in {key.partition(":")[0] for key in taint_texts(node)}, taint_texts(node)
        return node

    async def assert_node_disrupted(self, name: str) -> None:
        """The Node has the disruption taint."""
        assert DISRUPTED in taint_texts(await self.product.kube.request("GET", NODES.path(name))), (
            f"{name} has no disruption taint"
        )

    async def assert_node_not_disrupted(self, name: str) -> None:
        assert DISRUPTED not in taint_texts(await self.product.kube.request("GET", NODES.path(name))), (
            f"{name} has a disruption taint"
        )

    async def assert_in_phase(self, claim: str, phase: Phase) -> None:
        nodeclaim = await self.nodeclaim_workflow(claim)
        assert nodeclaim.open and nodeclaim.phase == phase.value, nodeclaim

    async def assert_initialization_waits(self, why: str) -> list[Object]:
        """Every NodeClaim of the scope waits for initialization for this reason. Returns the NodeClaims."""
        claims = await self.nodeclaims()
        reasons = [condition_reason(claim, "Initialized") for claim in claims]
        assert reasons and all(why in one for one in reasons), f"{self.name}: Initialized waits for {reasons}"
        return claims

    async def assert_conditions_mention(self, claim: str, *texts: str) -> None:
        """The NodeClaim's conditions contain these texts."""
        found = await self.product.kube.request("GET", NODE_CLAIMS.path(claim))
        reasons = " | ".join(condition_reason(found, kind) for kind in conditions_by_type(found))
        assert all(text in reasons for text in texts), f"{claim} has conditions {reasons}"

    async def assert_blocked_by(self, claim: str, *texts: str) -> None:
        """The NodeClaim's workflow is blocked, with these texts."""
        blocked = describe_blocker(await self.nodeclaim_state(claim))
        assert all(text in blocked for text in texts), f"{claim} is blocked by {blocked!r}"

    async def assert_nodeclaims_deleted(self, names: Sequence[str]) -> None:
        remaining = [_object_name(claim) for claim in await self.nodeclaims() if _object_name(claim) in names]
        assert not remaining, f"{self.name}: NodeClaims {remaining} are still there"

    async def assert_event(self, about: str, reason: str, *texts: str) -> Object:
        """An event has this reason, and these texts in its message."""
        found = await self.events_of(about)
        for one in found:
            if one["reason"] == reason and all(text in one.get("message", "") for text in texts):
                return one
        raise AssertionError(f"{about}: no {reason} {texts} among {[(e['reason'], e.get('message')) for e in found]}")

    async def assert_all_removed(self) -> None:
        await self.assert_no_nodes()
        await self.product.assert_deleted(self.pool_path)
        pool = ids.nodepool(self.product.sandbox.plan.cluster_name, self.name)
        assert pool not in [one.id for one in await self.product.open_workflows()], f"workflow {pool} is open"

    async def assert_no_nodes(self) -> None:
        """No NodeClaim, Node, instance or open workflow is left."""
        claims = [_object_name(claim) for claim in await self.nodeclaims()]
        assert not claims, f"{self.name}: NodeClaims {claims} are left"
        nodes = [_object_name(node) for node in await self.nodes()]
        assert not nodes, f"{self.name}: Nodes {nodes} are left"
        assert not self.alive_instances(), f"{self.name}: instances {self.alive_instances()} are left"
        running = [nodeclaim.name for nodeclaim in await self.nodeclaim_workflows() if nodeclaim.open]
        assert not running, f"{self.name}: workflows of {running} are open"


def condition_status(obj: Object, kind: str) -> str:
    """Status of a condition; empty if it does not exist."""
    return str(conditions_by_type(obj).get(kind, {}).get("status", ""))


def condition_reason(obj: Object, kind: str) -> str:
    """Reason and message of a condition."""
    found = conditions_by_type(obj).get(kind, {})
    return f"{found.get('reason', '')}: {found.get('message', '')}"


def ready_changed_at(node: Object) -> datetime:
    """Last transition of the condition Ready."""
    return datetime.fromisoformat(conditions_by_type(node)["Ready"]["lastTransitionTime"])


def conditions_by_type(obj: Object) -> dict[str, Object]:
    return {one["type"]: one for one in (obj.get("status") or {}).get("conditions") or ()}


def taint_texts(node: Object) -> set[str]:
    return {f"{one['key']}:{one['effect']}" for one in node["spec"].get("taints") or ()}


def object_names(objects: Sequence[Object]) -> list[str]:
    return [_object_name(one) for one in objects]


def _object_name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _label(obj: Object, key: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(key, ""))


def _is_deleting(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]
