"""What can be wrong with a NodePool beyond what its CRD checks (reference 1.6), and whether its NodeClass is ready."""

from model import labels
from model.kinds import EC2NodeClass, NodePool


def validate_node_pool(pool: NodePool) -> tuple[str, ...]:
    """Each error names the field, the value, and what to write instead."""
    template = pool.spec.template
    errors = [
        f"spec.template.metadata.labels[{key!r}]: the key is reserved; choose a domain of your own"
        for key in template.metadata.labels
        if labels.is_restricted(key) or key == labels.NODEPOOL
    ]
    errors += [
        f"spec.template.spec.requirements: key {one.key!r} is set by Tenure; leave it out"
        for one in template.spec.requirements
        if one.key == labels.NODEPOOL or labels.is_restricted(one.key)
    ]
    for one in template.spec.requirements:
        known = labels.WELL_KNOWN_VALUES.get(one.key)
        if known and one.operator == "In" and not known & set(one.values):
            errors.append(
                f"spec.template.spec.requirements: {one.key} In {sorted(one.values)} never holds; write {sorted(known)}"
            )
    pairs: set[tuple[str, str]] = set()
    for taint in (*template.spec.taints, *template.spec.startup_taints):
        if (taint.key, taint.effect) in pairs:
            errors.append(
                f"spec.template.spec: {taint.key}:{taint.effect} stands twice in taints and startupTaints; keep one"
            )
        pairs.add((taint.key, taint.effect))
    return tuple(errors)


def refuse_static(pool: NodePool) -> tuple[str, ...]:
    """The error of a static pool while the gate StaticCapacity is off: no node is made for it."""
    if pool.spec.replicas is None:
        return ()
    return (
        f"spec.replicas: {pool.spec.replicas}: no node is made for a static NodePool while the feature gate "
        "StaticCapacity is off; start the worker with FEATURE_GATES=StaticCapacity=true, or make a NodePool "
        "without replicas",
    )


def decide_node_class_ready(name: str, node_class: EC2NodeClass | None) -> tuple[str, str, str]:
    """Status, reason and message of the NodePool's condition NodeClassReady."""
    if node_class is None:
        return "False", labels.NODECLASS_NOT_FOUND, f"EC2NodeClass {name} is not there; create it or name another"
    if node_class.metadata.deleting:
        return "False", labels.NODECLASS_TERMINATING, f"EC2NodeClass {name} is being deleted"
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is None or ready.is_unknown:
        return "Unknown", labels.NODECLASS_READINESS_UNKNOWN, f"EC2NodeClass {name} is not resolved yet"
    return ready.status, ready.reason if ready.is_false else "", ready.message if ready.is_false else ""
