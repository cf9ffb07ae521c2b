"""From a plan to NodeClaims: names that the plan's id determines, objects, and groups that launch together."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from model import labels
from model.facts import ClaimFact
from model.kinds import NodeClaim
from model.launches import Member
from model.naming import claim_name, pool_as_owner, written_requirement
from model.plans import LaunchDraft, PlannedClaim
from model.pool_slices import PoolSlice
from model.quantity import format_resources

MOST_IN_GROUP: Final = 500
"""Members of one launch group; its workflow carries them in its state."""


def claim_names(plan_id: str, claims: Sequence[PlannedClaim]) -> list[str]:
    """One name for each claim: the pool's, and ten characters out of the plan's id and the claim's place in it."""
    return [claim_name(claim.pool, plan_id, index) for index, claim in enumerate(claims)]


def group_ids(
    plan_id: str, claims: Sequence[PlannedClaim], slices: Sequence[PoolSlice | None] | None = None
) -> list[str]:
    """The launch group of each claim: those that ask for the same thing, from the same slice, share one."""
    current: dict[tuple[str, PoolSlice | None], tuple[str, int]] = {}
    made = 0
    groups = []
    for claim, pool_slice in zip(claims, slices or [None] * len(claims), strict=True):
        key = _same_launch(claim), pool_slice
        group, size = current.get(key, ("", MOST_IN_GROUP))
        if size >= MOST_IN_GROUP:
            group, size, made = f"{plan_id}-{made}", 0, made + 1
        current[key] = (group, size + 1)
        groups.append(group)
    return groups


def node_claim(
    planned: PlannedClaim,
    *,
    name: str,
    plan_id: str,
    group_id: str = "",
    pool_slice: PoolSlice | None = None,
    replaces: str = "",
    replacements: int = 0,
) -> NodeClaim:
    """The object to create: with its finalizer from birth, so that no instance can be lost with it.

    Without a group it joins others that are alike. `replaces`: the workflow of the command that it is made for,
    and `replacements` how many are."""
    told = {
        labels.LAUNCH_GROUP: group_id,
        labels.POOL_SLICE: pool_slice.text() if pool_slice else "",
        labels.REPLACES: replaces,
        labels.REPLACEMENTS: str(replacements) if replacements else "",
        labels.WHY: planned.why,
    }
    return NodeClaim.from_object(
        {
            "apiVersion": labels.NODEPOOL_API_VERSION,
            "kind": "NodeClaim",
            "metadata": {
                "name": name,
                "labels": {
                    **planned.labels,
                    labels.NODEPOOL: planned.pool,
                    labels.nodeclass_label(planned.node_class_group, planned.node_class_kind): planned.node_class,
                },
                "annotations": {
                    **planned.annotations,
                    labels.PLAN: plan_id,
                    **{key: value for key, value in told.items() if value or key == labels.WHY},
                },
                "finalizers": [labels.TERMINATION_FINALIZER],
                "ownerReferences": [pool_as_owner(planned.pool, planned.pool_uid)],
            },
            "spec": _spec(planned),
        }
    )


def drafts(claims: Iterable[NodeClaim]) -> tuple[LaunchDraft, ...]:
    """The launch groups that these NodeClaims were made for, members in order of UID."""
    by_group: dict[str, list[NodeClaim]] = {}
    for claim in claims:
        by_group.setdefault(claim.metadata.annotations[labels.LAUNCH_GROUP], []).append(claim)
    return tuple(
        LaunchDraft(
            group_id=group_id,
            pool=members[0].nodepool,
            node_class=members[0].spec.node_class_ref.name,
            members=tuple(
                Member(name=one.name, uid=one.uid) for one in sorted(members, key=lambda one: one.metadata.uid)
            ),
            pool_slice=PoolSlice.read(members[0].metadata.annotations.get(labels.POOL_SLICE, "")),
        )
        for group_id, members in sorted(by_group.items())
    )


def _same_launch(claim: PlannedClaim) -> str:
    """All that a launch request is made of. Amounts asked for count only where no instance types are named, but for
    resources that a launch template says something for."""
    left_out = {"pods", "capacity_bound", "why"}
    if any(one.key == labels.INSTANCE_TYPE and one.operator == "In" for one in claim.requirements):
        left_out.add("requests")
    templated = [key for key in (labels.EFA, labels.NITRO_SANDBOX_RESOURCE) if claim.requests.get(key)]
    return f"{claim.model_dump_json(exclude=left_out)} {templated}"


def _spec(planned: PlannedClaim) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nodeClassRef": {
            "group": planned.node_class_group,
            "kind": planned.node_class_kind,
            "name": planned.node_class,
        },
        "requirements": [written_requirement(one) for one in planned.requirements],
        "resources": {"requests": format_resources(planned.requests)},
        "expireAfter": planned.expire_after,
    }
    if planned.taints:
        spec["taints"] = [one.model_dump(exclude_defaults=True) for one in planned.taints]
    if planned.startup_taints:
        spec["startupTaints"] = [one.model_dump(exclude_defaults=True) for one in planned.startup_taints]
    if planned.termination_grace_period:
        spec["terminationGracePeriod"] = planned.termination_grace_period
    return spec


def alike(claim: ClaimFact) -> str:
    """A hash of all that a launch is made of, for a NodeClaim that no plan made and that has no instance."""
    if claim.provider_id or labels.LAUNCH_GROUP in claim.annotations:
        return ""
    said = {
        "labels": sorted(claim.labels.items()),
        "relaxed": claim.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED, ""),
        "class": claim.node_class,
        "requests": sorted(claim.requests.items()),
        "wanted": [one.model_dump(mode="json") for one in (*claim.requirements, *claim.taints)],
        "startup": [one.model_dump(mode="json") for one in claim.startup_taints],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
