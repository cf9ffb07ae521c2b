"""One test's own corner of the product: a NodePool, and what runs, is launched and is told in its name.

Looks are live; assertions are coroutines, for `eventually` to repeat. At its end it removes what it made, and nothing
of it may be left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError

from tenure.apis import labels
from tenure.cli.nodes.workflows import NodeLife
from tenure.kube.client.resources import EVENTS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from tenure.model.nodeclaim_state import ClaimState
from tenure.sandbox.fault_proxy import Fault as ApiFault
from tenure.sandbox.nodes.fault_rules import Match, Rule, Trouble
from tests.support.product.eventually import eventually
from tests.support.product.objects import OF_TEST, Object, deployment, node_claim, node_pool
from tests.support.product.shared_sandbox import FaultRule
from workflows import ids

if TYPE_CHECKING:
    from tests.support.product.product import Product

DISRUPTED = f"{labels.DISRUPTED_TAINT_KEY}:{labels.NO_SCHEDULE}"
ALIVE = ("pending", "running", "stopping", "stopped")


class Scene:
    """An async context manager: the NodePool is there and Ready inside it."""

    def __init__(self, product: Product, name: str, pool: dict[str, Any]) -> None:
        self.product, self.name = product, name
        self.pool_path = NODE_POOLS.path(name)
        self._pool = pool
        self._paths: list[str] = []
        self._rules: list[Rule] = []
        self._aws_rules: list[str] = []
        self._api_rules: list[FaultRule] = []

    async def __aenter__(self) -> Self:
        await self.make(node_pool(self.name, **self._pool))
        return self

    async def __aexit__(self, *failed: object) -> None:
        """Remove all of it; a failed test leaves nothing either, but is not told so twice."""
        if isinstance(failed[1], Exception):
            failed[1].add_note(await self.told())
        await self._forgive_all()
        for path in reversed(self._paths):
            await self.product.delete(path)
        for claim in await self.claims():
            await self.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        if not any(failed):
            await self._leave_nothing()

    async def _leave_nothing(self) -> None:
        try:
            await eventually(self.nothing_is_left)
        except Exception as error:
            error.add_note(await self.told())
            raise

    # --- doing ---

    async def make(self, manifest: Object) -> Object:
        """Apply it; it goes when the scene ends."""
        made = await self.product.kube.apply(manifest)
        self._paths.append(await self.product.kube.path_of(manifest))
        return made

    async def deploy(self, replicas: int, name: str = "", **pod: Any) -> str:
        """A Deployment of this scene's pool: its name. `pod` is laid over the pods' spec."""
        called = name or self.name
        await self.make(deployment(called, pool=self.name, replicas=replicas, pod=pod))
        return called

    async def scale(self, replicas: int, name: str = "") -> None:
        path = f"/apis/apps/v1/namespaces/default/deployments/{name or self.name}/scale"
        await self.product.patch(path, {"spec": {"replicas": replicas}})

    async def run(self, pods: int, **pod: Any) -> list[Object]:
        """So many pods are Running, each on a node of its own that is initialized: their NodeClaims."""
        await self.deploy(pods, **pod)
        await eventually(lambda: self.pods_run(pods))
        return await eventually(lambda: self.nodes_are_initialized(pods))

    async def kubelet_is_ready(self, node: str) -> None:
        """Said in the place of a machine that was told to take very long for it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        well = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting ready status"}
        stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.product.patch_status(NODES.path(node), {"conditions": [well | stamps]})

    async def claim_by_hand(self) -> str:
        """A NodeClaim that a person makes, of no pool: its name."""
        name = f"{self.name}-hand"
        await self.make(node_claim(name))
        return name

    async def trouble(self, trouble: Trouble, *, node: str = "", of: str = "", count: int | None = None) -> Rule:
        """Befalls this scene's machines, or those of one instance type, or one of its nodes."""
        match = Match(node_name=node) if node else Match(nodepool=self.name, instance_type=of)
        rule = await self.product.nodes.add(trouble, match=match, count=count)
        self._rules.append(rule)
        return rule

    async def node_is_well_again(self, name: str) -> datetime:
        """The kubelet of a node in trouble says that it is over: when."""
        now = datetime.now(UTC).replace(microsecond=0)
        told = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now.isoformat()}
        await self.product.patch_status(NODES.path(name), {"conditions": [told]})
        return now

    def api_fault(self, fault: ApiFault, path: str, method: str) -> FaultRule:
        """Befalls workers' requests to paths that `path` is found in."""
        rule = self.product.faults.add(fault, path, method=method)
        self._api_rules.append(rule)
        return rule

    def pardon(self, rule: FaultRule) -> None:
        """That fault of the API server is over."""
        self._api_rules.remove(rule)
        self.product.faults.remove(rule)

    def hits(self, made: str) -> int:
        """How many calls an AWS fault has befallen."""
        (found,) = [rule["hits"] for rule in self.product.aws.faults() if rule["id"] == made]
        return int(found)

    def aws_fault(self, kind: str, action: str, value: str = "", **rule: Any) -> str:
        """Befalls calls with this pool, or `value`, in a parameter called Value or InstanceId: the rule's id."""
        named = {"InstanceId": value} if value.startswith("i-") else {"Value": value or self.name}
        made = self.product.aws.add_fault(kind, service="ec2", action=action, match=named, **rule)
        self._aws_rules.append(made)
        return made

    def forgive(self, made: str) -> None:
        """That AWS fault is over."""
        self._aws_rules.remove(made)
        self.product.aws.remove_fault(made)

    async def _forgive_all(self) -> None:
        for rule in self._rules:
            await self.product.nodes.remove(rule)
        for made in list(self._aws_rules):
            self.forgive(made)
        for api_rule in list(self._api_rules):
            self.pardon(api_rule)
        self._rules = []

    # --- looking ---

    async def claims(self) -> list[Object]:
        """NodeClaims of the pool, and those made by hand; in order of birth."""
        found = await self.product.items(NODE_CLAIMS.path(), label=f"{labels.NODEPOOL}={self.name}")
        found += await self.product.items(NODE_CLAIMS.path(), label=f"{OF_TEST}={self.name}-hand")
        return sorted(found, key=lambda claim: (claim["metadata"]["creationTimestamp"], claim["metadata"]["name"]))

    async def nodes(self) -> list[Object]:
        ours = {claim["status"].get("nodeName") for claim in await self.claims() if claim.get("status")}
        found = await self.product.items(NODES.path())
        return [one for one in found if _name(one) in ours or _label(one, labels.NODEPOOL) == self.name]

    async def pods(self, name: str = "") -> list[Object]:
        return await self.product.items(PODS.path(namespace="default"), label=f"app={name or self.name}")

    async def lives(self) -> list[NodeLife]:
        """Workflows of the pool's NodeClaims, ended ones too."""
        return await self.product.lives.all(f"TenureNodePool = '{self.name}'")

    async def life(self, claim: str) -> NodeLife:
        """As the visibility store has it, which a new one comes to a moment later."""
        found = [life for life in await self.product.lives.all() if life.name == claim]
        assert len(found) == 1, f"{claim} has {len(found)} lives"
        return found[0]

    def launched(self) -> list[str]:
        """Every instance that EC2 ever gave this scene."""
        ours = [fleet for fleet in self.product.aws.launches() if self._owns(fleet["tags"])]
        return [instance for fleet in ours for instance in fleet["instances"]]

    def tokens(self) -> list[str]:
        """The client tokens that EC2 launched anything for."""
        return [fleet["client_token"] for fleet in self.product.aws.launches() if self._owns(fleet["tags"])]

    def alive(self) -> list[str]:
        """Instances that are paid for."""
        found = self.product.aws.instances()["instances"]
        return [one["id"] for one in found if one["state"] in ALIVE and self._owns(one["tags"])]

    async def workflow(self, claim: str) -> WorkflowHandle[Any, Any]:
        """Of a NodeClaim's life, once visibility has it."""
        found = await eventually(lambda: self.life(claim))
        return self.product.temporal.get_workflow_handle(found.workflow_id)

    async def state(self, claim: str) -> ClaimState:
        """As its workflow has it. One that is asked just as a worker that is new hears news of it is asked again."""
        handle = await self.workflow(claim)

        async def ask() -> ClaimState:
            try:
                state: ClaimState = await handle.query("state", result_type=ClaimState)
            except WorkflowQueryFailedError as early:
                assert "ask again" not in str(early), early
                raise
            return state

        return await eventually(ask)

    async def told(self) -> str:
        """Every NodeClaim's life so far, for whoever has to find out why a test failed."""
        found = await self.lives()
        lives = [f"{one.name} {one.phase} on {one.node_name}: {one.blocked_by}" for one in found]
        claims = [f"{_name(one)}: {[reason(one, kind) for kind in conditions(one)]}" for one in await self.claims()]
        pods = [
            f"{_name(one)}: {one['status'].get('phase')} {one['spec'].get('nodeName')}" for one in await self.pods()
        ]
        events = [
            f"{one.name}: {event['reason']}: {event['message'][:160]}"
            for one in found
            for event in await self.events(one.name)
        ]
        return "\n".join(["lives", *lives, "NodeClaims", *claims, "pods", *pods, "events", *events])

    async def events(self, about: str) -> list[Object]:
        """Kubernetes events about an object of this name."""
        return await self.product.items(EVENTS.path(namespace="default"), field=f"involvedObject.name={about}")

    def _owns(self, tags: dict[str, str]) -> bool:
        hand = f"{self.name}-hand"
        return tags.get(labels.TAG_NODEPOOL) == self.name or tags.get(labels.TAG_NODECLAIM) == hand

    # --- asserting ---

    async def pods_run(self, pods: int, name: str = "") -> None:
        phases = [one["status"].get("phase") for one in await self.pods(name) if not _deleting(one)]
        assert phases == ["Running"] * pods, f"{name or self.name}: pods are {phases}"

    async def nodes_are_initialized(self, count: int) -> list[Object]:
        claims = await self.claims()
        told = [condition(claim, "Initialized") for claim in claims]
        assert told == ["True"] * count, f"{self.name}: Initialized is {told}"
        return claims

    async def one_node_was_bought(self) -> None:
        """One NodeClaim, one instance, since the beginning."""
        await self.nodes_were_bought(1)

    async def nodes_were_bought(self, count: int) -> None:
        """Since the beginning, and there are never fewer; visibility comes to the newest a moment later."""
        await eventually(lambda: self._were_bought(count))

    async def _were_bought(self, count: int) -> None:
        lives = await self.lives()
        assert len(lives) == count, f"{self.name}: NodeClaims {[life.name for life in lives]}"
        launched = self.launched()
        assert len(launched) == count, f"{self.name}: instances {launched}"

    async def instances_alive(self, count: int) -> None:
        assert len(self.alive()) == count, f"{self.name}: instances {self.alive()}"

    async def newest_claim(self, count: int) -> str:
        """The name of the youngest of so many."""
        found = [_name(claim) for claim in await self.claims()]
        assert len(found) == count, f"{self.name}: NodeClaims {found}"
        return found[-1]

    async def claims_stand(self, names: Sequence[str]) -> None:
        standing = [_name(claim) for claim in await self.claims() if not _deleting(claim)]
        assert set(names) <= set(standing), f"{self.name}: of {names} only {standing} stand"

    async def claim_is_deleting(self, claim: Object) -> None:
        found = await self.product.find(NODE_CLAIMS.path(_name(claim)))
        assert found is not None and _deleting(found), f"{_name(claim)} is not being deleted"

    async def node_is(self, name: str, *, ready: str) -> Object:
        """The Node, whose condition Ready has this status."""
        node = await self.product.kube.request("GET", NODES.path(name))
        assert condition(node, "Ready") == ready, f"{name}: {conditions(node).get('Ready')}"
        return node

    async def node_is_cordoned_off(self, name: str) -> Object:
        """NotReady, and the taint that keeps new pods away is there."""
        node = await self.node_is(name, ready="False")
        assert labels.NOT_READY_TAINT_KEY in {key.partition(":")[0] for key in taints(node)}, taints(node)
        return node

    async def node_is_marked(self, name: str) -> None:
        """Taken out of service, to be disrupted."""
        assert DISRUPTED in taints(await self.product.kube.request("GET", NODES.path(name))), f"{name} is not marked"

    async def node_is_in_service(self, name: str) -> None:
        assert DISRUPTED not in taints(await self.product.kube.request("GET", NODES.path(name))), f"{name} is marked"

    async def initialization_waits(self, why: str) -> list[Object]:
        """For this reason, as every NodeClaim of the scene says: these."""
        claims = await self.claims()
        told = [reason(claim, "Initialized") for claim in claims]
        assert told and all(why in one for one in told), f"{self.name}: Initialized waits for {told}"
        return claims

    async def says(self, claim: str, *words: str) -> None:
        """A NodeClaim says this in its conditions."""
        found = await self.product.kube.request("GET", NODE_CLAIMS.path(claim))
        told = " | ".join(reason(found, kind) for kind in conditions(found))
        assert all(word in told for word in words), f"{claim} has conditions {told}"

    async def is_blocked_by(self, claim: str, *words: str) -> None:
        """Its workflow says so."""
        blocked = (await self.life(claim)).blocked_by
        assert all(word in blocked for word in words), f"{claim} is blocked by {blocked!r}"

    async def claims_are_gone(self, names: Sequence[str]) -> None:
        left = [_name(claim) for claim in await self.claims() if _name(claim) in names]
        assert not left, f"{self.name}: NodeClaims {left} are still there"

    async def event(self, about: str, reason: str, *words: str) -> Object:
        """An event of this reason, with these words in its message."""
        found = await self.events(about)
        for one in found:
            if one["reason"] == reason and all(word in one["message"] for word in words):
                return one
        raise AssertionError(f"{about}: no {reason} {words} among {[(e['reason'], e['message']) for e in found]}")

    async def nothing_is_left(self) -> None:
        await self.nothing_runs()
        assert await self.product.find(self.pool_path) is None, f"NodePool {self.name} is left"
        pool = ids.nodepool(self.product.sandbox.plan.cluster_name, self.name)
        assert pool not in [one.id for one in await self.product.open_workflows()], f"workflow {pool} is open"

    async def nothing_runs(self) -> None:
        """No node in any shape: NodeClaim, Node, instance, workflow."""
        claims = [_name(claim) for claim in await self.claims()]
        assert not claims, f"{self.name}: NodeClaims {claims} are left"
        nodes = [_name(node) for node in await self.nodes()]
        assert not nodes, f"{self.name}: Nodes {nodes} are left"
        assert not self.alive(), f"{self.name}: instances {self.alive()} are left"
        running = [life.name for life in await self.lives() if life.open]
        assert not running, f"{self.name}: workflows of {running} are open"


def condition(thing: Object, kind: str) -> str:
    """Its status; empty when it is not there."""
    return str(conditions(thing).get(kind, {}).get("status", ""))


def reason(thing: Object, kind: str) -> str:
    """Reason and message of a condition."""
    found = conditions(thing).get(kind, {})
    return f"{found.get('reason', '')}: {found.get('message', '')}"


def ready(node: Object) -> datetime:
    """When the condition Ready last changed."""
    return datetime.fromisoformat(conditions(node)["Ready"]["lastTransitionTime"])


def conditions(thing: Object) -> dict[str, Object]:
    return {one["type"]: one for one in (thing.get("status") or {}).get("conditions") or ()}


def taints(node: Object) -> set[str]:
    return {f"{one['key']}:{one['effect']}" for one in node["spec"].get("taints") or ()}


def names(things: Sequence[Object]) -> list[str]:
    return [_name(one) for one in things]


def _name(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def _label(thing: Object, key: str) -> str:
    return str((thing["metadata"].get("labels") or {}).get(key, ""))


def _deleting(thing: Object) -> bool:
    return "deletionTimestamp" in thing["metadata"]
