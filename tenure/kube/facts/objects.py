"""Parses Nodes, NodeClaims, NodePools, NodeOverlays and PodDisruptionBudgets into facts with the fields in use."""

from collections.abc import Mapping
from typing import Any

from tenure.apis import labels
from tenure.apis.durations import NEVER, DurationError, parse_duration, parse_duration_or_none
from tenure.apis.quantity import QuantityError, parse_resources
from tenure.kube.facts.pod_topology import match_expressions, selector_expressions
from tenure.model.facts import NamespaceFact, NodeClaimFact, NodeFact, NodePoolFact, PodDisruptionBudgetFact
from tenure.model.node_health import RepairDue
from tenure.model.nodeclaim.node_identity import NODEPOOL_GAP, REGISTERED_GAP
from tenure.model.nodeoverlays import OverlayFact

Json = Mapping[str, Any]


def node_fact(node: Json) -> NodeFact:
    """Raises QuantityError."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = condition_of(status, labels.READY)
    return NodeFact.model_validate(
        {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "provider_id": spec.get("providerID", ""),
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "taints": _node_taints(spec),
            "tainted": {
                f"{one['key']}:{one['effect']}": one["timeAdded"]
                for one in spec.get("taints") or ()
                if one.get("timeAdded")
            },
            "capacity": parse_resources(status.get("capacity")),
            "allocatable": parse_resources(status.get("allocatable")),
            "ready": ready.get("status") == "True",
            "ready_changed": ready.get("lastTransitionTime"),
            "conditions": [
                {
                    "type": one["type"],
                    "status": one["status"],
                    "reason": one.get("reason") or "",
                    "since": one.get("lastTransitionTime"),
                }
                for one in status.get("conditions") or ()
            ],
            "declared_features": status.get("declaredFeatures") or (),
            "maintenance": [
                one["type"]
                for one in status.get("conditions") or ()
                if one["status"] == "True" and is_set_by_others(one)
            ],
            "boot_id": (status.get("nodeInfo") or {}).get("bootID", ""),
            "deleting": "deletionTimestamp" in metadata,
            "finalizers": metadata.get("finalizers") or (),
            "registration_gaps": registration_gaps(node),
            "created": metadata["creationTimestamp"],
        }
    )


def is_set_by_others(condition: Json) -> bool:
    """Whether it is a Node lifecycle condition of another controller."""
    is_own = condition.get("reason", "").startswith(labels.OWN_REASON_PREFIX)
    return condition["type"] in labels.NODE_LIFECYCLE_CONDITIONS and not is_own


def registration_gaps(node: Json) -> tuple[str, ...]:
    """The parts of registration that the Node lacks (reference 3.3), whichever NodeClaim it belongs to."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    present = metadata.get("labels") or {}
    is_missing = {
        REGISTERED_GAP: present.get(labels.REGISTERED) != "true",
        NODEPOOL_GAP: labels.NODEPOOL not in present,
        f"finalizer {labels.TERMINATION_FINALIZER}": labels.TERMINATION_FINALIZER
        not in (metadata.get("finalizers") or ())
        and "deletionTimestamp" not in metadata,
        "owner NodeClaim": all(one.get("kind") != "NodeClaim" for one in metadata.get("ownerReferences") or ()),
        f"no taint {labels.UNREGISTERED_TAINT_KEY}": any(
            one["key"] == labels.UNREGISTERED_TAINT_KEY for one in spec.get("taints") or ()
        ),
    }
    return tuple(gap for gap, missing in is_missing.items() if missing)


def check_durations(claim: Json) -> None:
    """Raises DurationError for durations with too many digits, which the CRD accepts.

    Such a NodeClaim is still used. It never expires, or its drain is never forced.
    """
    for field in ("expireAfter", "terminationGracePeriod"):
        try:
            parse_duration(claim["spec"].get(field) or NEVER)
        except DurationError as error:
            raise DurationError(f"spec.{field}: {error}; it counts as unset") from error


def nodeclaim_fact(claim: Json) -> NodeClaimFact:
    """Raises QuantityError."""
    metadata, spec, status = claim["metadata"], claim["spec"], claim.get("status") or {}
    drifted, disruption = true_condition(status, labels.DRIFTED), true_condition(status, labels.DISRUPTION_REASON)
    claim_labels = metadata.get("labels") or {}
    return NodeClaimFact.model_validate(
        {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "created": metadata["creationTimestamp"],
            "pool": claim_labels.get(labels.NODEPOOL, ""),
            "node_class": spec["nodeClassRef"]["name"],
            "labels": claim_labels,
            "annotations": metadata.get("annotations") or {},
            "requirements": _requirement_fields(spec.get("requirements")),
            "taints": _taint_fields(spec.get("taints")),
            "startup_taints": _taint_fields(spec.get("startupTaints")),
            "requests": parse_resources((spec.get("resources") or {}).get("requests")),
            "capacity": parse_resources(status.get("capacity")),
            "allocatable": parse_resources(status.get("allocatable")),
            "provider_id": status.get("providerID", ""),
            "image_id": status.get("imageID", ""),
            "node_name": status.get("nodeName", ""),
            "expire_after_seconds": _duration_seconds(spec.get("expireAfter", "720h")),
            "launched": is_condition_true(status, labels.LAUNCHED),
            "launched_at": true_condition(status, labels.LAUNCHED).get("lastTransitionTime"),
            "capacity_error": _capacity_error(status),
            "registered": is_condition_true(status, labels.REGISTERED_CONDITION),
            "registered_at": true_condition(status, labels.REGISTERED_CONDITION).get("lastTransitionTime"),
            "initialized": is_condition_true(status, labels.INITIALIZED_CONDITION),
            "initialized_at": true_condition(status, labels.INITIALIZED_CONDITION).get("lastTransitionTime"),
            "rebooting": is_condition_true(status, labels.REBOOTING),
            "attention_code": true_condition(status, labels.NEEDS_ATTENTION).get("reason", ""),
            "instance_terminating": is_condition_true(status, labels.INSTANCE_TERMINATING),
            "consistent": condition_of(status, labels.CONSISTENT_STATE_FOUND).get("status", ""),
            "disruption": disruption.get("reason", ""),
            "disrupted_by": disruption.get("message", ""),
            "drifted": drifted.get("reason", ""),
            "drifted_message": drifted.get("message", ""),
            "drifted_at": drifted.get("lastTransitionTime"),
            "repair_due": RepairDue.parse((metadata.get("annotations") or {}).get(labels.REPAIR_DUE, "")),
            "drain_waits": any(_is_waiting(status, one) for one in (labels.DRAINED, labels.VOLUMES_DETACHED)),
            "last_pod_event": status.get("lastPodEventTime"),
            "termination_grace_period": spec.get("terminationGracePeriod") or "",
            "deleting": "deletionTimestamp" in metadata,
            "deletion": metadata.get("deletionTimestamp"),
            "finalizers": metadata.get("finalizers") or (),
        }
    )


def _capacity_error(status: Json) -> str:
    condition = condition_of(status, labels.LAUNCHED)
    lacks_capacity = condition.get("status") != "True" and condition.get("reason") == labels.INSUFFICIENT_CAPACITY
    return condition.get("message", "") if lacks_capacity else ""


def nodepool_fact(pool: Json) -> NodePoolFact:
    """Raises QuantityError. `hash`: the pool's annotation, empty before its first write."""
    metadata, spec = pool["metadata"], pool["spec"]
    template_metadata, template = spec["template"].get("metadata") or {}, spec["template"]["spec"]
    reference, disruption = template["nodeClassRef"], spec.get("disruption") or {}
    return NodePoolFact.model_validate(
        {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "generation": metadata.get("generation", 0),
            "weight": spec.get("weight") or 0,
            "ready": is_condition_true(pool.get("status") or {}, labels.READY),
            "deleting": "deletionTimestamp" in metadata,
            "static": spec.get("replicas") is not None,
            "replicas": spec.get("replicas") or 0,
            "node_class": reference["name"],
            "node_class_group": reference["group"],
            "node_class_kind": reference["kind"],
            "template_labels": template_metadata.get("labels") or {},
            "template_annotations": template_metadata.get("annotations") or {},
            "requirements": _requirement_fields(template.get("requirements")),
            "taints": _taint_fields(template.get("taints")),
            "startup_taints": _taint_fields(template.get("startupTaints")),
            "expire_after": template.get("expireAfter", "720h"),
            "termination_grace_period": template.get("terminationGracePeriod") or "",
            "consolidate_after": disruption.get("consolidateAfter", "0s"),
            "consolidation_policy": disruption.get("consolidationPolicy", "WhenEmptyOrUnderutilized"),
            "limits": parse_resources(spec.get("limits")),
            "hash": (metadata.get("annotations") or {}).get(labels.NODEPOOL_HASH, ""),
            "hash_version": (metadata.get("annotations") or {}).get(labels.NODEPOOL_HASH_VERSION, ""),
        }
    )


def namespace_fact(namespace: Json) -> NamespaceFact:
    metadata = namespace["metadata"]
    return NamespaceFact(name=metadata["name"], labels=metadata.get("labels") or {})


def overlay_fact(overlay: Json) -> OverlayFact:
    """An invalid capacity is recorded as the problem of the fact, so that it can be reported on the object."""
    metadata, spec = overlay["metadata"], overlay["spec"]
    try:
        capacity, problem = parse_resources(spec.get("capacity")), ""
    except QuantityError as error:
        capacity, problem = {}, f"spec.capacity: {error}"
    return OverlayFact.model_validate(
        {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "generation": metadata.get("generation", 0),
            "weight": spec.get("weight") or 0,
            "requirements": match_expressions(spec.get("requirements")),
            "price": spec.get("price") or "",
            "adjustment": spec.get("priceAdjustment") or "",
            "capacity": capacity,
            "problem": problem,
        }
    )


def is_ours(reference: Json) -> bool:
    """Whether the nodeClassRef is an EC2NodeClass. Tenure ignores NodePools and NodeClaims with other kinds."""
    return reference.get("group") == labels.AWS_GROUP and reference.get("kind") == "EC2NodeClass"


def condition_of(status: Json, condition_type: str) -> Json:
    """The condition of this type; empty if missing."""
    return next((one for one in status.get("conditions") or () if one.get("type") == condition_type), {})


def _is_waiting(status: Json, type_: str) -> bool:
    found = condition_of(status, type_)
    return found.get("status") == "Unknown" and bool(found.get("message"))


def true_condition(status: Json, condition_type: str) -> Json:
    """The condition of this type; empty unless it is True."""
    found = condition_of(status, condition_type)
    return found if found.get("status") == "True" else {}


def is_condition_true(status: Json, condition_type: str) -> bool:
    return bool(true_condition(status, condition_type))


def _node_taints(spec: Json) -> list[dict[str, str]]:
    """Add the taint of a cordoned node, which appears later than the field. kube-scheduler reads the field."""
    taints = _taint_fields(spec.get("taints"))
    if spec.get("unschedulable") and not any(one["key"] == labels.UNSCHEDULABLE_TAINT_KEY for one in taints):
        taints.append({"key": labels.UNSCHEDULABLE_TAINT_KEY, "value": "", "effect": labels.NO_SCHEDULE})
    return taints


def _taint_fields(taints: Any) -> list[dict[str, str]]:
    return [{"key": one["key"], "value": one.get("value", ""), "effect": one["effect"]} for one in taints or ()]


def _requirement_fields(requirements: Any) -> list[dict[str, Any]]:
    expressions = zip(match_expressions(requirements), requirements or (), strict=True)
    return [{**expression, "min_values": one.get("minValues")} for expression, one in expressions]


def _duration_seconds(duration: str) -> int | None:
    parsed = parse_duration_or_none(duration)
    return None if parsed is None else int(parsed.total_seconds())


def pod_budget_fact(budget: Json) -> PodDisruptionBudgetFact:
    metadata, spec, status = budget["metadata"], budget.get("spec") or {}, budget.get("status") or {}
    return PodDisruptionBudgetFact.model_validate(
        {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "selector": selector_expressions(spec.get("selector"), "spec.selector"),
            "min_available": _int_or_percent_text(spec.get("minAvailable")),
            "max_unavailable": _int_or_percent_text(spec.get("maxUnavailable")),
            "expected": status.get("expectedPods", 0),
            "desired": status.get("desiredHealthy", 0),
            "current": status.get("currentHealthy", 0),
            "allowed": status.get("disruptionsAllowed", 0),
            "counted": status.get("observedGeneration", 0) >= metadata.get("generation", 0),
            "sync_failed": _sync_failed(status),
            "always_allow_unhealthy": spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
        }
    )


def _int_or_percent_text(value: Any) -> str:
    """A number or a percentage; empty if unset."""
    return "" if value is None else str(value)


def _sync_failed(status: Json) -> str:
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionAllowed" and one.get("reason") == "SyncFailed":
            return one.get("message") or "SyncFailed"
    return ""
