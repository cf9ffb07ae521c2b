"""NodeClaims from the template of their NodePool, and the objects to create. Imports no instance types."""

from typing import Any, Final

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import format_resources
from tenure.model.facts import Expression, NodePoolFact
from tenure.model.instance_types import OfferingShard
from tenure.model.nodeclaim.names import nodepool_owner_reference, to_requirement_json
from tenure.model.plan import PlannedNodeClaim
from tenure.model.requirements import Requirements
from tenure.scheduling.nodepool_requirements import nodeclaim_expressions, nodepool_requirements, template_labels

_NO_TIME: Final = {"__all__": {"time_added"}}
_NO_FIELDS_OF_FACT: Final[Any] = {"node_class_ref": True, "taints": _NO_TIME, "startup_taints": _NO_TIME}


def build_static_nodeclaim(pool: NodePool, *, name: str, plan_id: str) -> NodeClaim:
    """The NodeClaim of a static NodePool to create. Raises RequirementError."""
    template = pool.spec.template
    fields = template.spec.model_dump(by_alias=False, exclude=_NO_FIELDS_OF_FACT, exclude_none=True)
    fact = NodePoolFact(
        name=pool.metadata.name,
        uid=pool.metadata.uid,
        node_class=template.spec.node_class_ref.name,
        node_class_group=template.spec.node_class_ref.group,
        node_class_kind=template.spec.node_class_ref.kind,
        template_labels=template.metadata.labels,
        template_annotations=template.metadata.annotations,
        hash=nodepool_hash(pool),
        **fields,
    )
    why = f"one of spec.replicas={pool.spec.replicas}, regardless of pods"
    return build_nodeclaim(plan_static_nodeclaim(fact, why), name=name, plan_id=plan_id)


def plan_static_nodeclaim(pool: NodePoolFact, why: str) -> PlannedNodeClaim:
    """The template of a static NodePool, without instance types or requests (reference 2.12). Raises
    RequirementError."""
    requirements = nodepool_requirements(pool)
    nodeclaim = plan_from_template(pool, requirements, nodeclaim_expressions(requirements))
    return nodeclaim.model_copy(update={"why": why})


def plan_from_template(
    pool: NodePoolFact, requirements: Requirements, expressions: tuple[Expression, ...], *, relaxed: bool = False
) -> PlannedNodeClaim:
    """The fields that follow from the NodePool. `requirements`: those that determine labels; `expressions`: those of
    the NodeClaim."""
    return PlannedNodeClaim(
        pool=pool.name,
        pool_uid=pool.uid,
        node_class=pool.node_class,
        labels={**requirements.custom_labels(), **template_labels(pool)},
        annotations={
            **pool.template_annotations,
            labels.NODEPOOL_HASH: pool.hash,
            labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
            labels.NODECLAIM_MIN_VALUES_RELAXED: str(relaxed).lower(),
        },
        requirements=expressions,
        requests={},
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        expire_after=pool.expire_after,
        termination_grace_period=pool.termination_grace_period,
        node_class_group=pool.node_class_group,
        node_class_kind=pool.node_class_kind,
    )


def build_nodeclaim(
    planned: PlannedNodeClaim,
    *,
    name: str,
    plan_id: str,
    group_id: str = "",
    offering_shard: OfferingShard | None = None,
    replaces: str = "",
    replacements: int = 0,
    pod_groups: str = "",
) -> NodeClaim:
    """The object to create, with its finalizer from the start, so that no instance is lost with it.

    Without a group, it joins a launch group of similar NodeClaims. `replaces`: the workflow ID of the command that
    needs it; `replacements`: the number of replacements of that command; `pod_groups`: the value of the annotation."""
    annotations = {
        labels.LAUNCH_GROUP: group_id,
        labels.OFFERING_SHARD: offering_shard.format() if offering_shard else "",
        labels.REPLACES: replaces,
        labels.REPLACEMENTS: str(replacements) if replacements else "",
        labels.LAUNCH_REASON: planned.why,
        labels.POD_GROUPS: pod_groups,
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
                    **{key: value for key, value in annotations.items() if value or key == labels.LAUNCH_REASON},
                },
                "finalizers": [labels.TERMINATION_FINALIZER],
                "ownerReferences": [nodepool_owner_reference(planned.pool, planned.pool_uid)],
            },
            "spec": _build_spec(planned),
        }
    )


def _build_spec(planned: PlannedNodeClaim) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nodeClassRef": {
            "group": planned.node_class_group,
            "kind": planned.node_class_kind,
            "name": planned.node_class,
        },
        "requirements": [to_requirement_json(one) for one in planned.requirements],
        "expireAfter": planned.expire_after,
    }
    if planned.requests:
        spec["resources"] = {"requests": format_resources(planned.requests)}
    if planned.taints:
        spec["taints"] = [one.model_dump(exclude_defaults=True) for one in planned.taints]
    if planned.startup_taints:
        spec["startupTaints"] = [one.model_dump(exclude_defaults=True) for one in planned.startup_taints]
    if planned.termination_grace_period:
        spec["terminationGracePeriod"] = planned.termination_grace_period
    return spec
