"""Checks before a cluster is taken over from Karpenter. Each finding names object, field, value and fix."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.apis import labels
from tenure.apis.nodepool import NodePool
from tenure.aws.nodeclass.instance_profiles import ProfileInUse
from tenure.controller.adoption_preview import AdoptedNodeClaim, AdoptionPreview
from tenure.kube.adapters.cluster import ObservedLease
from tenure.kube.adapters.workloads import DeploymentState
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.facts.objects import is_ours
from tenure.model.errors import Finding, Subject
from tenure.model.provider_results import ResolvedNodeClass
from tenure.policy.nodepool import reject_static, validate_nodepool

CONTROLLER: Final = "controller"
OBJECTS: Final = "objects"
CLASSES: Final = "classes"
NODES: Final = "nodes"
_SOON: Final = timedelta(hours=1)


def check_controllers(
    leases: Sequence[ObservedLease], karpenter: DeploymentState | None, path: str, now: datetime
) -> list[Finding]:
    found = []
    for one in leases:
        age = f"renewed {(now - one.renewed).total_seconds():.0f} s ago"
        where = f"Lease in {one.namespace}"
        if one.is_active(now):
            found.append(Subject(CONTROLLER, where).ok(f"{one.holder} leads, {age}; Tenure does not act while it does"))
        else:
            found.append(Subject(CONTROLLER, where).ok(f"no leader: {one.holder or 'no holder'}, {age}"))
    if not leases:
        found.append(Subject(CONTROLLER, "Lease").ok("not found: no leader"))
    if karpenter is not None:
        message = f"{karpenter.replicas} replicas of {karpenter.image}"
        return [*found, Subject(CONTROLLER, f"Deployment {karpenter.qualified_name}").ok(message)]
    if any(one.is_active(now) for one in leases):
        message, todo = "Karpenter is running, but this Deployment was not found", "name it: --karpenter NAMESPACE/NAME"
        return [*found, Subject(CONTROLLER, f"Deployment {path}").problem(message, todo)]
    return [*found, Subject(CONTROLLER, f"Deployment {path}").ok("not found")]


def check_adopted_objects(preview: AdoptionPreview, static: bool) -> list[Finding]:
    """Objects that a worker would reject. `static`: the feature gate StaticCapacity."""
    kinds = (resources.NODE_POOLS, resources.EC2_NODE_CLASSES, resources.NODE_CLAIMS, resources.NODES)
    counts = ", ".join(f"{one.kind} {len(preview.objects.get(one.plural, ()))}" for one in kinds)
    found = [Subject(OBJECTS, "read").ok(counts)]
    for kind, name, violation in preview.unreadable:
        todo = "correct the field: a worker would ignore the object"
        found.append(Subject(OBJECTS, f"{kind} {name}").problem(violation, todo))
    for raw in preview.objects.get(resources.NODE_POOLS.plural, ()):
        found += _check_nodepool(NodePool.from_object(raw), raw, static)
    for raw in preview.objects.get(resources.NODE_CLAIMS.plural, ()):
        if not is_ours(raw["spec"]["nodeClassRef"]):
            at = Subject(OBJECTS, f"NodeClaim {raw['metadata']['name']}")
            found.append(_foreign_object_finding(at, raw["spec"]["nodeClassRef"]))
    return found


def _check_nodepool(pool: NodePool, raw: Json, static: bool) -> Iterator[Finding]:
    at = Subject(OBJECTS, f"NodePool {pool.name}")
    reference = raw["spec"]["template"]["spec"]["nodeClassRef"]
    if not is_ours(reference):
        yield _foreign_object_finding(at, reference)
        return
    for violation in (*validate_nodepool(pool), *(() if static else reject_static(pool))):
        yield at.problem(violation, "correct it: Tenure launches no nodes for it until then")
    if pool.metadata.is_deleting:
        yield at.advice("it and its nodes are being deleted", "wait until it is deleted")


def _foreign_object_finding(at: Subject, reference: Json) -> Finding:
    message = f"nodeClassRef names the kind {reference.get('kind')} of {reference.get('group')}"
    todo = "Tenure ignores it: no controller manages it once Karpenter is stopped"
    return at.advice(message, todo)


def check_nodeclasses(
    resolved: Mapping[str, ResolvedNodeClass], profiles: Mapping[str, ProfileInUse | str], objects: Sequence[Json]
) -> list[Finding]:
    """Resolved selectors and instance profiles. `profiles`: a text is the reason why the profile is unknown."""
    found: list[Finding] = []
    for raw in objects:
        name = raw["metadata"]["name"]
        at = Subject(CLASSES, f"EC2NodeClass {name}")
        resolution = resolved.get(name)
        if resolution is None:
            todo = "wait until it is deleted, or find what blocks the deletion: drift of its nodes is not evaluated"
            found.append(at.advice("it is being deleted", todo))
            continue
        for one in resolution.conditions:
            if one.status == "False":
                message = f"{one.type} {one.reason}: {one.message}"
                found.append(at.problem(message, "correct the selector it names"))
        for message in resolution.failed_lookups:
            found.append(at.unknown(message, "drift of its nodes is not evaluated for this: try again"))
        if resolution.ca_bundle is None:
            todo = "let these credentials call eks:DescribeCluster"
            found.append(at.unknown("the cluster's CA certificate, a part of the static hash, is unknown", todo))
        found.append(_check_instance_profile(at, raw, profiles.get(name, "")))
    return found


def _check_instance_profile(at: Subject, raw: Json, profile: ProfileInUse | str) -> Finding:
    if isinstance(profile, str):
        todo = "let these credentials call iam:GetInstanceProfile"
        return at.unknown(f"instance profile: {profile}", todo)
    has = (raw.get("status") or {}).get("instanceProfile", "")
    if profile.name == has or not has:
        status = "stays in use" if profile.there else "would be created"
        return at.ok(f"instance profile {profile.name} ({profile.whose}) {status}")
    message = f"new nodes would have {profile.name} instead of status.instanceProfile {has}"
    return at.advice(message, "nothing: running nodes keep theirs, and none drifts")


def check_nodes(preview: AdoptionPreview) -> list[Finding]:
    """The outcome for each NodeClaim, and instances without one."""
    now = preview.at
    found = [one for taken in preview.claims for one in _check_nodeclaim(taken, now)]
    calm = sum(not list(_check_nodeclaim(taken, now)) for taken in preview.claims)
    if preview.claims:
        message = f"{calm} of {len(preview.claims)} would be taken over as they are"
        found.insert(0, Subject(NODES, "NodeClaims").ok(message))
    for one in preview.unowned:
        message = f"it has the tags of this cluster but no NodeClaim ({one.instance_type} in {one.zone})"
        todo = "garbage collection would terminate it, as Karpenter would; remove its tags to keep it"
        found.append(Subject(NODES, f"instance {one.instance_id}").advice(message, todo))
    return found


def _check_nodeclaim(taken: AdoptedNodeClaim, now: datetime) -> Iterator[Finding]:
    claim = taken.claim
    at = Subject(NODES, f"NodeClaim {claim.name}")
    yield from _check_drift(at, taken)
    if claim.deleting:
        todo = "nothing: Tenure continues its drain; or wait until it is deleted"
        yield at.advice("it is being deleted", todo)
        return
    yield from _check_instance(at, taken)
    if claim.disruption or (taken.node is not None and taken.node.being_disrupted):
        message = f"Karpenter is about to disrupt it ({claim.disruption or labels.DISRUPTED_TAINT_KEY})"
        todo = "nothing: Tenure returns it to service and evaluates it again; or wait until it is deleted"
        yield at.advice(message, todo)
    if claim.expire_after_seconds is not None:
        ends = claim.created + timedelta(seconds=claim.expire_after_seconds)
        if ends < now + _SOON:
            when = "has expired" if ends < now else f"expires at {ends:%H:%M UTC}"
            todo = "nothing: Karpenter would delete it too"
            yield at.advice(f"spec.expireAfter: it {when}", todo)


def _check_drift(at: Subject, taken: AdoptedNodeClaim) -> Iterator[Finding]:
    claim, drift = taken.claim, taken.drift
    if drift is not None and claim.drifted:
        message = f"it is drifted ({claim.drifted}) and remains drifted ({drift.reason}: {drift.message})"
        todo = "nothing: the budgets of its NodePool apply, as with Karpenter"
        yield at.advice(message, todo)
    elif drift is not None:
        message = f"it would drift, but has not with Karpenter: {drift.reason}: {drift.message}"
        todo = 'find the cause before adopting; a budget of nodes: "0" for Drifted on its NodePool keeps it meanwhile'
        yield at.problem(message, todo)
    elif not taken.is_evaluated and claim.launched and claim.pool and not claim.deleting:
        message = f"drift is unknown: the instance types of EC2NodeClass {claim.node_class} are unknown"
        yield at.problem(message, "fix the problem of the class and run this again")
    elif claim.drifted:
        yield at.ok(f"Karpenter reports it as drifted ({claim.drifted}); Tenure would not")


def _check_instance(at: Subject, taken: AdoptedNodeClaim) -> Iterator[Finding]:
    claim = taken.claim
    if not claim.provider_id:
        message = "it has no instance yet: Karpenter may be launching it"
        yield at.advice(message, "run this again in a minute")
        return
    if taken.fault:
        yield at.unknown(f"status.providerID {claim.provider_id}: {taken.fault}", "run this again in a minute")
        return
    if taken.instance is None:
        message = f"status.providerID {claim.provider_id}: EC2 has no such instance"
        yield at.advice(message, "nothing: garbage collection would delete it, as Karpenter would")
        return
    if not taken.tagged:
        expected_tags = (labels.TAG_NODEPOOL, labels.TAG_NODECLASS, labels.TAG_EKS_CLUSTER_NAME)
        absent = [one for one in expected_tags if one not in taken.instance.tags]
        missing = ", ".join(absent) or labels.TAG_EKS_CLUSTER_NAME
        message = f"instance {taken.instance.instance_id} is not found by its tags: {missing} is missing or different"
        todo = "tag it like the other instances: without the tags, drift is not checked, and each read is one more call"
        yield at.advice(message, todo)
    if claim.registered and taken.node is None:
        message = f"no Node has the providerID {claim.provider_id}"
        todo = "see `kubectl describe nodeclaim`: without a Node it cannot be drained"
        yield at.advice(message, todo)
