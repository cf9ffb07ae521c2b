"""Eligible nodes, and the causes and messages of ineligible ones."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.disruption.decision import Command, CommandCandidate, Decision, DisruptionBudgets, NodeVerdict
from tenure.model.facts import StorageFact
from tests.unit.scheduling.builders import NOW, instance_type, pod, pvc, toleration, volume
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pdb, pool

DO_NOT = "karpenter.sh/do-not-disrupt"


def verdict(fleet: Fleet, name: str = "n", **request: Any) -> NodeVerdict:
    return next(one for one in fleet.decide(**request).nodes if one.claim == name)


def causes(one: NodeVerdict) -> dict[str, str]:
    return {cause.cause: cause.message for cause in one.excluded}


def disrupted_nodes(found: Decision) -> set[str]:
    return {name for command in found.commands for name in command.node_names}


def test_empty_node_is_eligible() -> None:
    found = verdict(Fleet().node("n", "m.large"))
    assert found.eligible == ("Empty",) and not found.excluded
    assert (found.price, found.cost, found.pods) == (0.1, 1.0, 0)


def test_daemonset_and_static_pods_do_not_occupy_a_node() -> None:
    fleet = Fleet().node("n", "m.large", pod(daemonset=True), pod(mirror=True), pod(phase="Succeeded"))
    assert verdict(fleet).eligible == ("Empty",)


def test_node_with_pods_is_eligible_as_underutilized() -> None:
    found = verdict(Fleet().node("n", "m.large", pod(), pod()))
    assert found.eligible == ("Underutilized",) and found.pods == 2 and found.cost == 3.0


@pytest.mark.parametrize(
    ("nodeclaim_fields", "cause", "message"),
    [
        ({"deleting": True}, "Deleting", "it is being deleted"),
        ({"instance_terminating": True}, "Deleting", "it is being deleted"),
        ({"initialized": False}, "NotInitialized", "its node is not initialized yet"),
    ],
)
def test_deleting_and_uninitialized_nodes_are_ineligible(
    nodeclaim_fields: dict[str, Any], cause: str, message: str
) -> None:
    found = verdict(Fleet().node("n", "m.large", **nodeclaim_fields))
    assert found.eligible == () and causes(found)[cause] == message


def test_nodeclaim_without_node_is_ineligible() -> None:
    fleet = Fleet().node("n", "m.large")
    del fleet.nodes["n"], fleet.pods["n"]
    assert causes(verdict(fleet))["NoNode"] == "its Node is missing"


def test_nominated_node_is_ineligible() -> None:
    found = verdict(Fleet().node("n", "m.large"), nominated=("n",))
    assert causes(found) == {"Nominated": "pending pods are nominated to it"}


def test_node_that_fits_pending_pods_is_ineligible() -> None:
    fleet = Fleet(facts=[pod("waiting")]).node("n", "m.large")
    assert causes(verdict(fleet)) == {"Nominated": "pod waiting is expected on it"}


def test_node_of_an_in_flight_command_is_ineligible() -> None:
    candidate = CommandCandidate(node="n", claim="n", pool="default")
    busy = Command(reason="Drifted", kind="drift", candidates=(candidate,))
    found = verdict(Fleet().node("n", "m.large"), under_way=(busy,))
    assert causes(found) == {"InProgress": "it is part of a disruption in progress"}


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("true", f"the Node has the annotation {DO_NOT}: true"),
        ("2h", ""),
        ("soon", ""),
    ],
)
def test_do_not_disrupt_on_the_node(annotation: str, message: str) -> None:
    found = verdict(Fleet().node("n", "m.large", node={"annotations": {DO_NOT: annotation}}))
    assert causes(found) == ({"NodeDoNotDisrupt": message} if message else {})


@pytest.mark.parametrize(
    ("annotation", "started", "until"),
    [
        ("true", 10, "never"),
        ("1h", 10, "2026-01-02T03:54:05+00:00"),
        ("1h", None, "2026-01-02T03:34:05+00:00"),
        ("5m", 10, ""),
        ("invalid", 10, ""),
    ],
)
def test_do_not_disrupt_on_a_pod(annotation: str, started: int | None, until: str) -> None:
    since: dict[str, Any] = {"started": NOW - timedelta(minutes=started)} if started else {}
    busy = pod("p", do_not_disrupt=annotation, age=1800, **since)
    found = causes(verdict(Fleet().node("n", "m.large", busy))).get("PodDoNotDisrupt", "")
    ends = "" if until == "never" else f", until {until}"
    assert found == (f"pod default/p has the annotation {DO_NOT}: {annotation}{ends}" if until else "")


def test_do_not_disrupt_applies_to_daemonset_pods_but_not_to_terminating_pods() -> None:
    do_not_disrupt: dict[str, Any] = {"do_not_disrupt": "true"}
    assert "PodDoNotDisrupt" in causes(verdict(Fleet().node("n", "m.large", pod(daemonset=True, **do_not_disrupt))))
    assert not causes(
        verdict(
            Fleet().node("n", "m.large", pod(deleting=True, **do_not_disrupt), pod(phase="Failed", **do_not_disrupt))
        )
    )


UNPLANNABLE = "spec.resourceClaims: Dynamic Resource Allocation is not supported"


@pytest.mark.parametrize(
    ("more", "is_excluded"),
    [({}, True), ({"do_not_disrupt": "true"}, True), ({"daemonset": True}, False), ({"phase": "Succeeded"}, False)],
    ids=["pod", "unreadable pod", "DaemonSet pod", "finished pod"],
)
def test_pod_that_cannot_be_planned_excludes_its_node(more: dict[str, Any], is_excluded: bool) -> None:
    """Also from drift with a terminationGracePeriod, which would end the pod."""
    drifted: dict[str, Any] = {"drifted": "NodePoolDrifted", "termination_grace_period": "1h"}
    busy = pod("p", unplannable=UNPLANNABLE, **more)
    found = verdict(Fleet().node("n", "m.large", busy, **drifted))
    assert causes(found) == ({"PodUnplannable": f"pod default/p: {UNPLANNABLE}"} if is_excluded else {})
    assert ("Drifted" in found.eligible) is not is_excluded


def test_pod_whose_volume_has_an_unknown_field_excludes_its_node() -> None:
    reason = "spec.rackAffinity: Tenure does not know this field"
    storage: list[StorageFact] = [pvc("data", volume="v"), volume("v", unknown_field=reason)]
    found = causes(verdict(Fleet(facts=storage).node("n", "m.large", pod("p", volumes=("data",)))))
    assert found == {"PodUnplannable": f"pod default/p: PersistentVolume v: {reason}"}


WEB: dict[str, Any] = {"labels": {"app": "web"}}


@pytest.mark.parametrize(
    ("budgets", "pods", "message"),
    [
        ([pdb("a", "app In web")], WEB, "pod default/p: PodDisruptionBudget default/a allows no disruption now"),
        ([pdb("a", "app In web", allowed=1)], WEB, ""),
        ([pdb("a", "app In db")], WEB, ""),
        ([pdb("a", "app In web", namespace="other")], WEB, ""),
        ([pdb("a", "app In web", always_allow_unhealthy=True)], WEB | {"ready": False}, ""),
        (
            [pdb("a", "app In web", always_allow_unhealthy=True)],
            WEB | {"ready": True},
            "pod default/p: PodDisruptionBudget default/a allows no disruption now",
        ),
        (
            [pdb("a", "app In web", allowed=1), pdb("b", "app Exists", allowed=1)],
            WEB,
            "pod default/p is selected by 2 PodDisruptionBudgets (a, b), so it cannot be evicted",
        ),
        ([pdb("a", "app In web")], WEB | {"mirror": True}, ""),
        ([pdb("a", "app In web")], WEB | {"tolerations": (toleration("karpenter.sh/disrupted"),)}, ""),
    ],
)
def test_pod_disruption_budget_makes_a_node_ineligible(budgets: list[Any], pods: dict[str, Any], message: str) -> None:
    found = causes(verdict(Fleet(facts=budgets).node("n", "m.large", pod("p", **pods))))
    cause = "MultiplePodDisruptionBudgets" if "selected by" in message else "PodDisruptionBudget"
    assert found == ({cause: message} if message else {})


def test_all_causes_are_listed_per_pod() -> None:
    fleet = Fleet(facts=[pdb("a", "app In web")])
    fleet.node(
        "n", "m.large", pod("p", **WEB), pod("q", do_not_disrupt="true", **WEB), node={"annotations": {DO_NOT: "true"}}
    )
    found = [one.cause for one in verdict(fleet, nominated=("n",)).excluded]
    assert found == ["Nominated", "NodeDoNotDisrupt", "PodDisruptionBudget", "PodDoNotDisrupt", "PodDisruptionBudget"]


def test_drift_with_termination_grace_period_ignores_do_not_disrupt_pods() -> None:
    fleet = Fleet().node("n", "m.large", pod("p", do_not_disrupt="true"), drifted="NodePoolDrifted")
    assert verdict(fleet).eligible == ()
    fleet.nodeclaims["n"] = fleet.nodeclaims["n"].model_copy(update={"termination_grace_period": "1h"})
    assert verdict(fleet).eligible == ("Drifted",)


@pytest.mark.parametrize(
    ("of", "pods", "eligible", "cause"),
    [
        ({"consolidate_after": "Never"}, 0, (), "Never"),
        ({"consolidate_after": "2h"}, 0, (), "Resting"),
        ({"consolidate_after": "30m"}, 0, ("Empty",), ""),
        ({"consolidation_policy": "WhenEmpty"}, 0, ("Empty",), ""),
        ({"consolidation_policy": "WhenEmpty"}, 1, (), "Policy"),
        ({"consolidation_policy": "Balanced"}, 1, ("Underutilized",), ""),
        ({"consolidation_policy": ""}, 1, (), "PolicyUnknown"),
        ({"consolidate_after": "soon"}, 1, (), "PolicyUnknown"),
        ({"static": True, "replicas": 1}, 0, (), "StaticPool"),
    ],
)
def test_eligibility_by_consolidation_settings_of_the_nodepool(
    of: dict[str, Any], pods: int, eligible: tuple[str, ...], cause: str
) -> None:
    fleet = Fleet(pool(**of)).node("n", "m.large", *[pod() for _ in range(pods)])
    found = verdict(fleet)
    assert found.eligible == eligible
    assert set(causes(found)) == ({cause} if cause else set())


def test_consolidate_after_counts_from_the_last_pod_event() -> None:
    fleet = Fleet(pool(consolidate_after="30m")).node("n", "m.large", last_pod_event=NOW - timedelta(minutes=10))
    (found,) = verdict(fleet).excluded
    assert found.until == NOW + timedelta(minutes=20)
    assert found.message == "consolidateAfter 30m of NodePool default ends at 2026-01-02T03:24:05+00:00"


def test_node_younger_than_the_minimum_age_is_ineligible() -> None:
    young = DisruptionBudgets(youngest={"default": timedelta(hours=2)})
    (found,) = verdict(Fleet().node("n", "m.large"), allowed_disruptions=young).excluded
    assert (found.cause, found.until) == ("TooYoung", NOW + timedelta(hours=1))


def test_node_of_a_missing_or_closed_nodepool_is_ineligible() -> None:
    fleet = Fleet().node("n", "m.large")
    fleet.nodeclaims["n"] = fleet.nodeclaims["n"].model_copy(update={"pool": "gone"})
    assert causes(verdict(fleet)) == {
        "NoPool": "NodePool gone not found: delete the NodeClaim, or create the NodePool again"
    }
    closed = Fleet(pool(node_class="unknown")).node("n", "m.large")
    found = causes(verdict(closed))
    assert set(found) == {"PoolClosed"}
    assert found["PoolClosed"].endswith("EC2NodeClass unknown has no instance types yet")


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ({"node.kubernetes.io/instance-type": "x.large"}, "NoInstanceType"),
        ({"karpenter.sh/capacity-type": ""}, "NoCapacityType"),
        ({"topology.kubernetes.io/zone": ""}, "NoZone"),
        ({"topology.kubernetes.io/zone": "elsewhere"}, "NoPrice"),
    ],
)
def test_node_without_known_price_is_eligible_only_if_empty(labels: dict[str, str], cause: str) -> None:
    assert set(causes(verdict(Fleet().node("n", "m.large", pod(), labels=labels)))) == {cause}
    assert verdict(Fleet().node("n", "m.large", labels=labels)).eligible == ("Empty",)


def test_priority_and_deletion_cost_raise_the_disruption_cost() -> None:
    fleet = Fleet().node(
        "n", "m.large", pod(priority=1 << 25), pod(deletion_cost=-(1 << 28)), pod(priority=2_000_000_000), pod()
    )
    assert verdict(fleet).cost == 1.0 + 2.0 + 0.0 + 10.0 + 1.0


def test_reserved_node_has_the_price_of_its_reservation() -> None:
    plain = instance_type("m.large", cpu=2, memory=8)
    reserved = plain.offerings[0].model_copy(
        update={"capacity_type": "reserved", "price": 0.01, "reservation_id": "cr-1", "reservation_type": "default"}
    )
    instance_types = [plain.model_copy(update={"offerings": (*plain.offerings, reserved)})]
    reservation_labels = {"karpenter.k8s.aws/capacity-reservation-id": "cr-1"}
    fleet = Fleet(instance_types=instance_types).node(
        "n", "m.large", pod(), capacity_type="reserved", labels=reservation_labels
    )
    assert verdict(fleet).price == 0.01


def test_node_without_nodepool_is_not_listed() -> None:
    fleet = Fleet().node("n", "m.large")
    fleet.nodeclaims["n"] = fleet.nodeclaims["n"].model_copy(update={"pool": ""})
    assert fleet.decide().nodes == ()


def test_ineligible_node_may_receive_pods() -> None:
    """The ineligible node has 8 CPUs, so both pods move there."""
    fleet = Fleet().node("big", "m.2xlarge", pod(do_not_disrupt="true")).node("n", "m.xlarge", pod(), pod())
    assert disrupted_nodes(fleet.decide()) == {"n"}


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        (("DrainInProgress",), "another controller has set the condition DrainInProgress"),
        (("MaintenancePlanned", "Drained"), "another controller has set the condition Drained"),
        (("MaintenancePlanned",), ""),
        ((), ""),
    ],
)
def test_node_that_another_controller_maintains_is_ineligible(conditions: tuple[str, ...], cause: str) -> None:
    found = verdict(Fleet().node("n", "m.large", node={"maintenance": conditions}))
    assert causes(found) == ({"NodeMaintenance": cause} if cause else {})
    assert found.eligible == (() if cause else ("Empty",))


@pytest.mark.parametrize(("conditions", "disrupted"), [((), {"n"}), (("MaintenancePlanned",), set())])
def test_node_with_planned_maintenance_receives_no_displaced_pods(
    conditions: tuple[str, ...], disrupted: set[str]
) -> None:
    fleet = Fleet().node("big", "m.2xlarge", pod(do_not_disrupt="true"), node={"maintenance": conditions})
    assert disrupted_nodes(fleet.node("n", "m.xlarge", pod(), pod()).decide()) == disrupted
