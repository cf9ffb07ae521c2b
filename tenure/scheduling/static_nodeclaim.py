"""The NodeClaim of a static NodePool: its template, without instance types or requests (reference 2.12)."""

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.facts import Expression
from tenure.model.nodeclaim.names import nodepool_owner_reference, to_requirement_json
from tenure.model.requirements import Requirements


def build_static_nodeclaim(pool: NodePool, *, name: str, plan_id: str) -> NodeClaim:
    """The object to create, with its finalizer from the start. Without a launch group, it joins similar NodeClaims.

    Raises RequirementError for invalid requirements.
    """
    template = pool.spec.template
    reference = template.spec.node_class_ref
    own = {
        **template.metadata.labels,
        labels.NODEPOOL: pool.metadata.name,
        labels.nodeclass_label(reference.group, reference.kind): reference.name,
    }
    requirements = Requirements.from_expressions(
        Expression(key=one.key, operator=one.operator, values=one.values, min_values=one.min_values)
        for one in template.spec.requirements
    ).intersection(Requirements.from_labels(own))
    metadata = {
        "name": name,
        "labels": {**requirements.custom_labels(), **own},
        "annotations": {
            **template.metadata.annotations,
            labels.NODEPOOL_HASH: nodepool_hash(pool),
            labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
            labels.NODECLAIM_MIN_VALUES_RELAXED: "false",
            labels.PLAN: plan_id,
            labels.LAUNCH_REASON: f"one of spec.replicas={pool.spec.replicas}, regardless of pods",
        },
        "finalizers": [labels.TERMINATION_FINALIZER],
        "ownerReferences": [nodepool_owner_reference(pool.metadata.name, pool.metadata.uid)],
    }
    spec = {
        **template.spec.model_dump(mode="json", by_alias=True),
        "requirements": [to_requirement_json(one) for one in requirements.expressions()],
    }
    return NodeClaim.from_object(
        {"apiVersion": labels.NODEPOOL_API_VERSION, "kind": "NodeClaim", "metadata": metadata, "spec": spec}
    )
