"""Default topology spread: which pods get it, and the selectors of Services and controllers."""

from typing import Any

import pytest

from tenure.kube.facts.default_spread import DefaultSpread
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import PodFact
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness

ZONE = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
HOSTNAME = {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
OWN = {**ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
LABELS = {"app": "web", "tier": "front"}


def replicas_pod(
    name: str = "web-1", *, owner: str = "ReplicaSet", labels: dict[str, str] = LABELS, **spec: Any
) -> Any:
    return builders.pod(name, owner=owner, metadata={"labels": labels}, **spec)


def owned(kind: str, selector: object) -> Any:
    return {"metadata": {"uid": f"owner-{kind}", "namespace": "default", "name": "x"}, "spec": {"selector": selector}}


def selected(pod: PodFact) -> list[str]:
    """The expressions of the first constraint, as text."""
    return [f"{one.key}={','.join(one.values)}" for one in (pod.spreads[0].selector or ())] if pod.spreads else []


def test_pod_without_constraints_gets_all_defaults() -> None:
    spread = DefaultSpread([ZONE, HOSTNAME])
    spread.update("ReplicaSet", owned("ReplicaSet", {"matchLabels": {"app": "web"}}))
    found = spread.apply(pod_fact(replicas_pod()))
    assert [(one.key, one.max_skew, one.hard) for one in found.spreads] == [
        ("topology.kubernetes.io/zone", 1, False),
        ("kubernetes.io/hostname", 3, True),
    ]
    assert selected(found) == ["app=web"] and spread.apply(found) is found


@pytest.mark.parametrize(
    "raw",
    [
        replicas_pod(topologySpreadConstraints=[OWN]),
        replicas_pod(owner="DaemonSet"),
        replicas_pod(labels={"app": "other"}, owner="Job"),
    ],
    ids=["its own", "DaemonSet", "selected by nothing"],
)
def test_other_pods_are_left_as_they_are(raw: Any) -> None:
    spread = DefaultSpread([ZONE])
    spread.update("DaemonSet", owned("DaemonSet", {"matchLabels": {"app": "web"}}))
    spread.update("Service", {"metadata": {"namespace": "default", "name": "a"}, "spec": {"selector": {"app": "web"}}})
    fact = pod_fact(raw)
    assert spread.apply(fact) is fact


@pytest.mark.parametrize(
    ("services", "controller", "expected"),
    [
        ({"a": {"app": "web"}, "b": {"tier": "front"}}, None, ["app=web", "tier=front"]),
        ({"a": {"app": "web"}, "other": {"app": "api"}}, None, ["app=web"]),
        ({"none": None, "empty": {}}, None, []),
        ({"a": {"tier": "front"}}, ("ReplicaSet", {"matchLabels": {"app": "web"}}), ["tier=front", "app=web"]),
        ({"a": {"app": "web"}}, ("StatefulSet", {"matchLabels": {"app": "web"}}), ["app=web", "app=web"]),
        ({"a": {"app": "web"}}, ("ReplicationController", {"app": "new"}), ["app=new"]),
        ({}, ("ReplicaSet", None), []),
    ],
)
def test_selector_has_services_then_the_controller(
    services: dict[str, Any], controller: tuple[str, Any] | None, expected: list[str]
) -> None:
    spread = DefaultSpread([ZONE])
    for name, selector in services.items():
        spread.update("Service", {"metadata": {"namespace": "default", "name": name}, "spec": {"selector": selector}})
    if controller:
        spread.update(controller[0], owned(*controller))
    assert selected(spread.apply(pod_fact(replicas_pod(owner=controller[0] if controller else "Job")))) == expected


def test_cached_pods_follow_services_and_controllers() -> None:
    harness = CacheHarness()
    harness.cache.default_spread = DefaultSpread([ZONE])
    harness.apply_objects("pods", replicas_pod(), replicas_pod("own", topologySpreadConstraints=[OWN]))

    def selectors() -> list[list[str]]:
        return [selected(harness.cache.pods[f"uid-{name}"]) for name in ("web-1", "own")]

    assert selectors() == [[], ["app=web"]]
    service = {"metadata": {"uid": "s", "namespace": "default", "name": "a"}, "spec": {"selector": {"tier": "front"}}}
    harness.apply_objects("services", service)
    assert selectors() == [["tier=front"], ["app=web"]]
    harness.apply_objects("replicasets", owned("ReplicaSet", {"matchLabels": {"app": "web"}}))
    assert selectors() == [["tier=front", "app=web"], ["app=web"]]
    assert harness.cache.drain_changes().pods
    harness.delete_objects("services", service)
    harness.delete_objects("replicasets", owned("ReplicaSet", None))
    assert selectors() == [[], ["app=web"]]
    harness.apply_objects("pods", replicas_pod("web-1", on="n"))
    assert selectors() == [[], ["app=web"]]


def test_without_default_constraints_nothing_changes() -> None:
    spread = DefaultSpread()
    spread.update("ReplicaSet", owned("ReplicaSet", {"matchLabels": {"app": "web"}}))
    fact = pod_fact(replicas_pod())
    assert spread.apply(fact) is fact
