"""How each kind of pod affects a drain and the emptiness of a node (reference 3.14, 2.2)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.kube.adapters.pods import stays_until_termination
from tenure.kube.facts.pod_drain import drain_pod, is_protected, is_tolerated
from tenure.model.facts import Toleration
from tenure.model.provider_results import DrainPod
from tenure.policy.drain.blockers import terminating_blocker
from tenure.policy.drain.decision import escalation_deadline, is_late, next_change_at
from tests.support.kube.builders import pod_json

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def timestamp_before_now(age_seconds: float) -> str:
    return (NOW - timedelta(seconds=age_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_drain_pod(
    *, owner: str = "ReplicaSet", phase: str = "Running", started: float = 600, **more: Any
) -> DrainPod:
    metadata = {
        "uid": "u",
        "creationTimestamp": timestamp_before_now(3600),
        "ownerReferences": [{"kind": owner, "uid": "o", "controller": True}],
        **more.pop("metadata", {}),
    }
    raw = pod_json("p", node="n", metadata=metadata, **more)
    raw["status"] = {"phase": phase, "startTime": timestamp_before_now(started)}
    return drain_pod(raw, NOW)


def annotated_metadata(value: str) -> dict[str, Any]:
    return {"annotations": {"karpenter.sh/do-not-disrupt": value}}


def terminating_metadata(late_by_seconds: float) -> dict[str, Any]:
    return {"deletionTimestamp": timestamp_before_now(late_by_seconds)}


def test_ordinary_pod_is_evicted_awaited_and_rescheduled() -> None:
    pod = build_drain_pod()
    assert (pod.waits, pod.evictable, pod.reschedulable, pod.group, pod.grace_seconds) == (True, True, True, 0, 30)


@pytest.mark.parametrize("grace", [-(2**63), 10**11, 2**63 - 1])
@pytest.mark.parametrize("metadata", [{}, terminating_metadata(-20)], ids=["running", "terminating"])
def test_extreme_grace_period_has_deadlines(grace: int, metadata: dict[str, Any]) -> None:
    """The API server accepts every int64."""
    pod, deadline = build_drain_pod(metadata=metadata, terminationGracePeriodSeconds=grace), NOW + timedelta(hours=1)
    assert is_late(pod, deadline, NOW) is (grace > 0 and not metadata)
    assert NOW < escalation_deadline([pod], NOW) < NOW + timedelta(days=4000)
    assert next_change_at((), [pod], deadline, None, NOW) == deadline
    if metadata:
        assert terminating_blocker(pod).passes_at == NOW + timedelta(seconds=80)


POD_KINDS: dict[str, tuple[dict[str, Any], bool, bool, bool]] = {
    "finished": ({"phase": "Succeeded"}, False, False, False),
    "static": ({"owner": "Node"}, False, False, False),
    "daemonset": ({"owner": "DaemonSet"}, True, True, False),
    "tolerates the taint": ({"tolerations": [{"operator": "Exists"}]}, False, False, True),
    "terminating": ({"metadata": terminating_metadata(-20)}, True, False, False),
    "stuck terminating for over a minute": ({"metadata": terminating_metadata(61)}, False, False, False),
    "terminating late but not stuck": ({"metadata": terminating_metadata(59)}, True, False, False),
    "terminating StatefulSet pod": ({"owner": "StatefulSet", "metadata": terminating_metadata(-20)}, True, False, True),
    "do-not-disrupt": ({"metadata": annotated_metadata("true")}, True, False, True),
    "do-not-disrupt for 1h": ({"metadata": annotated_metadata("1h")}, True, False, True),
    "do-not-disrupt for 5m has expired": ({"metadata": annotated_metadata("5m")}, True, True, True),
    "do-not-disrupt: Never": ({"metadata": annotated_metadata("Never")}, True, True, True),
    "invalid do-not-disrupt": ({"metadata": annotated_metadata("maybe")}, True, True, True),
}


@pytest.mark.parametrize(("fields", "waits", "evictable", "reschedulable"), POD_KINDS.values(), ids=POD_KINDS.keys())
def test_pod_kind_decides_eviction_wait_and_rescheduling(
    fields: dict[str, Any], waits: bool, evictable: bool, reschedulable: bool
) -> None:
    pod = build_drain_pod(**fields)
    assert (pod.waits, pod.evictable, pod.reschedulable) == (waits, evictable, reschedulable)


@pytest.mark.parametrize(
    ("owner", "priority", "group"),
    [
        ("ReplicaSet", "", 0),
        ("DaemonSet", "", 1),
        ("ReplicaSet", "system-cluster-critical", 2),
        ("DaemonSet", "system-node-critical", 3),
    ],
)
def test_pods_are_drained_in_four_groups(owner: str, priority: str, group: int) -> None:
    assert build_drain_pod(owner=owner, priorityClassName=priority).group == group


def test_reason_against_eviction_is_reported() -> None:
    assert build_drain_pod(metadata=annotated_metadata("true")).why_not == "annotation karpenter.sh/do-not-disrupt=true"
    assert build_drain_pod(metadata=terminating_metadata(-20)).why_not == "terminating"
    assert build_drain_pod().why_not == ""


def test_end_of_a_temporary_protection_is_reported() -> None:
    assert build_drain_pod(metadata=annotated_metadata("1h")).protected_until == NOW + timedelta(seconds=3000)
    assert build_drain_pod(metadata=annotated_metadata("true")).protected_until is None
    assert build_drain_pod(metadata=annotated_metadata("5m")).protected_until is None


def test_controller_owner_labels_and_readiness_are_read() -> None:
    pod = build_drain_pod(
        metadata={"labels": {"app": "web"}, "ownerReferences": [{"kind": "Job", "name": "j", "uid": "o"}]}
    )
    assert (pod.owner_kind, pod.labels, pod.ready) == ("", {"app": "web"}, False)
    owned = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-5", "uid": "o", "controller": True}]}
    pod = build_drain_pod(metadata=owned)
    assert (pod.owner_kind, pod.owner_name) == ("ReplicaSet", "web-5")


@pytest.mark.parametrize(
    ("ready", "containers_ready", "spec", "expected"),
    [
        ("False", "True", {}, True),
        ("True", "True", {}, False),
        ("False", "False", {}, False),
        ("False", "True", {"readinessGates": [{"conditionType": "target-health"}]}, False),
    ],
)
def test_ready_set_to_false_by_the_node_lifecycle_controller_is_recognized(
    ready: str, containers_ready: str, spec: dict[str, Any], expected: bool
) -> None:
    raw = pod_json("p", node="n", metadata={"uid": "u", "creationTimestamp": timestamp_before_now(3600)}, **spec)
    conditions = [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": containers_ready}]
    raw["status"] = {"phase": "Running", "conditions": conditions}
    pod = drain_pod(raw, NOW)
    assert (pod.ready, pod.controller_set_not_ready) == (ready == "True", expected)


@pytest.mark.parametrize(
    ("status", "metadata", "spec", "stay"),
    [
        ({"phase": "Running"}, {}, {}, False),
        ({"phase": "Running"}, {}, {"tolerations": [{"operator": "Exists"}]}, True),
        ({"phase": "Running"}, terminating_metadata(61), {}, True),
        ({"phase": "Running"}, terminating_metadata(-20), {}, False),
        ({"phase": "Succeeded"}, {}, {}, False),
    ],
)
def test_pods_whose_volumes_are_not_awaited(
    status: dict[str, Any], metadata: dict[str, Any], spec: dict[str, Any], stay: bool
) -> None:
    """They stay until termination: they tolerate the taint, or their kubelet cannot end them (reference 3.13)."""
    meta = {"uid": "u", "creationTimestamp": timestamp_before_now(3600), **metadata}
    assert stays_until_termination({**pod_json("p", node="n", metadata=meta, **spec), "status": status}, NOW) is stay


def test_protection_of_a_pod_without_start_time_holds() -> None:
    assert is_protected("10m", None, NOW)
    assert not is_protected("-10m", None, NOW)
    assert not is_protected("Never", None, NOW)


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v", effect="NoExecute"), False),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_toleration_matches_taint(toleration: Toleration, covers: bool) -> None:
    assert is_tolerated((toleration,), "k", "v", "NoSchedule") is covers
