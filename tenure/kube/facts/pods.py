"""Parses pods and DaemonSets into facts for planning and drains, with requests as in kube-scheduler (reference 2.10).

It runs for every pod event. Therefore it builds one plain dict, which pydantic validates once.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from tenure.apis import labels, resources
from tenure.apis.durations import MAX_LENGTH, parse_duration_or_none, quote
from tenure.kube.facts.objects import condition_of, true_condition
from tenure.kube.facts.pod_requests import explain_oversized, pod_requests, requests_on_node
from tenure.kube.facts.pod_topology import intern_string, node_selector_term, topology_terms
from tenure.kube.facts.scheduling_fields import find_rejected_field, required_features
from tenure.model.facts import DaemonSetFact, PodFact, Toleration

Json = Mapping[str, Any]


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
DEFAULT_SCHEDULER: Final = "default-scheduler"
MAX_SCHEDULER_MESSAGE: Final = 200
"""Characters."""
_DAEMON_TERMS: Final = ("labels", "anti_affinity", "host_ports")
"""The topology terms of a DaemonSet's template that affect other pods."""
_INT32: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_TOLERATION: Final = {name: name for name in ("key", "operator", "value", "effect")} | {"seconds": "tolerationSeconds"}


def pod_fact(pod: Json) -> PodFact:
    """Raises QuantityError for an invalid request, which API servers do not admit."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    owner = controller_owner(owners)
    requests = pod_requests(spec, status)
    oversized = explain_oversized(spec, requests)
    scheduled = condition_of(status, "PodScheduled")
    is_unscheduled = scheduled.get("status") == "False"
    return PodFact.model_validate(
        {
            "uid": metadata["uid"],
            "namespace": intern_string(metadata["namespace"]),
            "name": metadata["name"],
            "requests": requests_on_node(requests) if oversized and spec.get("nodeName") else requests,
            "unplannable": find_rejected_field(spec, status, requests) or oversized,
            "created": metadata["creationTimestamp"],
            "node_name": intern_string(spec.get("nodeName", "")),
            **_nomination_fields(status),
            "phase": intern_string(status.get("phase", "Pending")),
            "deleting": "deletionTimestamp" in metadata,
            "deletion_deadline": metadata.get("deletionTimestamp"),
            "unschedulable": is_unscheduled and scheduled.get("reason") == "Unschedulable",
            "unscheduled_since": scheduled.get("lastTransitionTime") if is_unscheduled else None,
            **_scheduler_fields(spec, scheduled),
            "untried": not spec.get("schedulingGates") and not scheduled,
            "gated": bool(spec.get("schedulingGates")),
            "owner_kind": intern_string(owner.get("kind", "")),
            "owner_uid": intern_string(owner.get("uid", "")),
            "daemonset": any(one.get("kind") == "DaemonSet" for one in owners),
            "mirror": MIRROR_ANNOTATION in annotations or any(one.get("kind") == "Node" for one in owners),
            "do_not_disrupt": read_protection(annotations)[0],
            "started": status.get("startTime"),
            "bound": true_condition(status, "PodScheduled").get("lastTransitionTime"),
            "ready": _ready_status(status),
            **deletion_cost_fields(annotations),
            **_placement_fields(spec),
            **topology_terms(metadata, spec),
        }
    )


def _scheduler_fields(spec: Json, scheduled: Json) -> dict[str, str]:
    """The message of the default scheduler is left out, since it changes often and Tenure explains such pods itself."""
    name = spec.get("schedulerName") or DEFAULT_SCHEDULER
    if name == DEFAULT_SCHEDULER:
        return {}
    message = scheduled.get("message", "") if scheduled.get("status") == "False" else ""
    return {"scheduler": intern_string(name), "scheduler_message": message[:MAX_SCHEDULER_MESSAGE]}


def read_protection(
    annotations: Json, *, path: str = "metadata.annotations", protects: str = "the pod", durations: bool = True
) -> tuple[str, str]:
    """The value of do-not-disrupt, and the problem with it; both empty without the annotation.

    As in Karpenter, a value that is neither `true` nor a duration has no effect. A value that is too long to parse may
    be a duration, so it protects the objects in `protects`. `durations`: False for a Node, where only `true` counts.
    """
    value = str(annotations.get(labels.DO_NOT_DISRUPT, ""))
    if value in ("", "true", "false"):
        return value, ""
    subject = f"{path}[{labels.DO_NOT_DISRUPT}]: {quote(value)}"
    if not durations:
        return "", f"{subject}: a Node accepts only 'true'; it has no effect"
    if len(value) > MAX_LENGTH:
        problem = f"has {len(value)} characters, a duration has at most {MAX_LENGTH}"
        return "true", f"{subject} {problem}; it protects {protects} until it is fixed"
    if parse_duration_or_none(value) is None:
        return "", f"{subject}: invalid duration, expected e.g. '1h30m', or 'true'; it has no effect"
    return value, ""


class AnnotationError(ValueError):
    """An invalid annotation; the message has its effect. The rest of the object is used."""


def format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def read_pod(pod: Json, report: Callable[[Exception], str] = format_error) -> PodFact:
    """Parse a pod; an invalid pod gets safe defaults. Raises KeyError for an object without identity.

    `report` receives the error, and returns a sentence about it.
    """
    try:
        _, problem = read_protection(pod["metadata"].get("annotations") or {})
        if problem:
            report(AnnotationError(problem))
        return pod_fact(pod)
    except Exception as error:
        return _unreadable_pod_fact(pod, report(error))


def _unreadable_pod_fact(pod: Json, why: str) -> PodFact:
    """Safe defaults for an invalid pod: it is not planned, and it protects its node from voluntary disruption."""
    metadata = pod["metadata"]
    spec = pod.get("spec") if isinstance(pod.get("spec"), Mapping) else {}
    status = pod.get("status") if isinstance(pod.get("status"), Mapping) else {}
    owner = controller_owner(metadata.get("ownerReferences") or ())
    return PodFact(
        uid=metadata["uid"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        requests={resources.PODS: 1},
        created=metadata["creationTimestamp"],
        node_name=str((spec or {}).get("nodeName", "")),
        phase=str((status or {}).get("phase", "Pending")),
        deleting="deletionTimestamp" in metadata,
        owner_kind=str(owner.get("kind", "")),
        owner_uid=str(owner.get("uid", "")),
        daemonset=owner.get("kind") == "DaemonSet",
        do_not_disrupt="true",
        unplannable=f"the pod cannot be read: {why[:200]}",
    )


def daemonset_fact(daemonset: Json, admitted_spec: Json | None = None) -> DaemonSetFact:
    """The pod of a DaemonSet, from its template. As at admission, limits replace missing requests.

    `admitted_spec`: the pod spec of the template after admission, if it is known.
    """
    metadata, spec = daemonset["metadata"], admitted_spec or daemonset["spec"]["template"]["spec"]
    template = daemonset["spec"]["template"].get("metadata") or {}
    named = {"uid": metadata["uid"], "namespace": metadata["namespace"], "name": metadata["name"]}
    return DaemonSetFact.model_validate(
        {
            **named,
            "pod": {
                **named,
                "requests": pod_requests(spec, limits_too=True),
                "created": metadata["creationTimestamp"],
                "owner_kind": "DaemonSet",
                "owner_uid": metadata["uid"],
                "daemonset": True,
                "do_not_disrupt": (template.get("annotations") or {}).get(labels.DO_NOT_DISRUPT, ""),
                # Counted on every node, because the features of new nodes are not known.
                **_placement_fields(spec, features=()),
                **{key: value for key, value in topology_terms(template, spec).items() if key in _DAEMON_TERMS},
            },
        }
    )


def virtual_pod_fact(buffer: Json, template: Json) -> PodFact:
    """A virtual pod of a CapacityBuffer: the template without its volumes (reference 2.20).

    `template` has the pod's metadata and spec. Raises QuantityError and ValidationError."""
    metadata, pod = buffer["metadata"], template.get("metadata") or {}
    spec = template.get("spec") or {}
    return PodFact.model_validate(
        {
            "uid": metadata["uid"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "requests": (requests := pod_requests(spec, limits_too=True)),
            "unplannable": find_rejected_field(spec, {}, requests),
            "created": metadata["creationTimestamp"],
            **_placement_fields(spec),
            **topology_terms(pod, {**spec, "volumes": ()}),
        }
    )


def _placement_fields(spec: Json, features: Iterable[str] | None = None) -> dict[str, Any]:
    """`features`: those that the node must declare, by default those that kube-scheduler infers from the spec."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return {
        "priority": spec.get("priority", 0),
        "priority_class": spec.get("priorityClassName", ""),
        "node_selector": _node_selector(spec, required_features(spec) if features is None else features),
        "required_terms": [node_selector_term(term) for term in required],
        "preferred_terms": [
            {"weight": one["weight"], "expressions": node_selector_term(one.get("preference"))} for one in preferred
        ],
        "tolerations": [_parse_toleration(one) for one in spec.get("tolerations") or ()],
    }


def _node_selector(spec: Json, features: Iterable[str]) -> Json:
    """The node selector with the pod's `os`, because a kubelet rejects pods of another OS, and required features."""
    selector, os = spec.get("nodeSelector") or {}, spec.get("os")
    required = {labels.DECLARED_FEATURE.format(one): "true" for one in features}
    return {**({labels.OS: os["name"]} if os else {}), **selector, **required} if os or required else selector


def _parse_toleration(one: Json) -> Toleration | dict[str, Any]:
    fields = {name: one.get(key) for name, key in _TOLERATION.items()}
    set_fields = {name: value for name, value in fields.items() if value not in (None, "")}
    plain = all(type(value) is (int if name == "seconds" else str) for name, value in set_fields.items())
    return _cached_toleration(*set_fields.items()) if plain else set_fields


@lru_cache(maxsize=1024)
def _cached_toleration(*set_fields: tuple[str, str | int]) -> Toleration:
    """Share tolerations between pods, because almost all pods have the same two."""
    return Toleration.model_validate(dict(set_fields))


def controller_owner(owners: Iterable[Json]) -> Json:
    """The owner that manages the object; empty if none."""
    return next((one for one in owners if one.get("controller")), {})


def _nomination_fields(status: Json) -> dict[str, str]:
    """Distinguish Tenure's nominations, which have a condition with the node, from kube-scheduler's by preemption."""
    node = status.get("nominatedNodeName", "")
    ours = condition_of(status, labels.NOMINATED)
    return {"expected_on": node} if ours and ours.get("message") == node else {"nominated_node": node}


def _ready_status(status: Json) -> bool | None:
    """None before the kubelet's first status."""
    condition = condition_of(status, labels.READY)
    return condition.get("status") == "True" if condition else None


def deletion_cost_fields(annotations: Json) -> dict[str, Any]:
    """A cost that equals its copy in the annotation tenure.sh/pod-deletion-cost is Tenure's, and not the pod's."""
    found = annotations.get(labels.POD_DELETION_COST, "")
    is_own = bool(found) and found == annotations.get(labels.OWN_DELETION_COST)
    foreign = "" if is_own else found
    return {
        "deletion_cost": _parse_int32(annotations.get(labels.DISRUPTION_COST, foreign)),
        "written_cost": _parse_int32(found) if is_own else None,
        "has_foreign_cost": bool(foreign),
    }


def _parse_int32(text: str) -> int:
    """Zero if it is not an integer of 32 bits, as in Karpenter (reference 1.15, 6.2)."""
    value = int(text) if _INT32.fullmatch(text) else 0
    return value if -(2**31) <= value < 2**31 else 0
