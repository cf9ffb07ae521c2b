"""Which nodes could go, and every cause that keeps the others, in words."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.disruption.decision import Command, CommandCandidate, Decision, DisruptionBudgets, NodeVerdict
from tests.unit.scheduling.builders import NOW, instance_type, pod, toleration
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pdb, pool

DO_NOT = "karpenter.sh/do-not-disrupt"


def verdict(fleet: Fleet, name: str = "n", **request: Any) -> NodeVerdict:
    return next(one for one in fleet.decide(**request).nodes if one.claim == name)


def causes(one: NodeVerdict) -> dict[str, str]:
    return {cause.cause: cause.message for cause in one.excluded}


def disrupted_nodes(found: Decision) -> set[str]:
    return {name for command in found.commands for name in command.node_names}


def test_an_empty_node_of_ours_may_go() -> None:
    found = verdict(Fleet().node("n", "m.large"))
    assert found.eligible == ("Empty",) and not found.excluded
    assert (found.price, found.cost, found.pods) == (0.1, 1.0, 0)


def test_daemonset_and_static_pods_do_not_make_a_node_busy() -> None:
    fleet = Fleet().node("n", "m.large", pod(daemonset=True), pod(mirror=True), pod(phase="Succeeded"))
    assert verdict(fleet).eligible == ("Empty",)


def test_a_node_with_pods_may_be_underutilized() -> None:
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
def test_where_it_is_in_its_life(nodeclaim_fields: dict[str, Any], cause: str, message: str) -> None:
    found = verdict(Fleet().node("n", "m.large", **nodeclaim_fields))
    assert found.eligible == () and causes(found)[cause] == message


def test_a_claim_without_node_says_so() -> None:
    fleet = Fleet().node("n", "m.large")
    del fleet.nodes["n"], fleet.pods["n"]
    assert causes(verdict(fleet))["NoNode"] == "it has no Node yet"


def test_a_node_that_pods_are_nominated_to_stays() -> None:
    found = verdict(Fleet().node("n", "m.large"), nominated=("n",))
    assert causes(found) == {"Nominated": "pending pods are nominated to it"}


def test_a_node_that_waiting_pods_would_go_to_stays() -> None:
    fleet = Fleet(facts=[pod("waiting")]).node("n", "m.large")
    assert causes(verdict(fleet)) == {"Nominated": "pod waiting is expected on it"}


def test_a_node_of_a_command_under_way_stays() -> None:
    candidate = CommandCandidate(node="n", claim="n", pool="default")
    busy = Command(reason="Drifted", kind="drift", candidates=(candidate,))
    found = verdict(Fleet().node("n", "m.large"), under_way=(busy,))
    assert causes(found) == {"InProgress": "it is part of a disruption in progress"}


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("true", f"the Node has the annotation {DO_NOT}: true"),
        ("2h", f"the Node has the annotation {DO_NOT}: 2h, until 2026-01-02T04:04:05+00:00"),
        ("30m", ""),
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
        ("when I say so", 10, ""),
    ],
)
def test_do_not_disrupt_on_a_pod(annotation: str, started: int | None, until: str) -> None:
    since: dict[str, Any] = {"started": NOW - timedelta(minutes=started)} if started else {}
    busy = pod("p", do_not_disrupt=annotation, age=1800, **since)
    found = causes(verdict(Fleet().node("n", "m.large", busy))).get("PodDoNotDisrupt", "")
    ends = "" if until == "never" else f", until {until}"
    assert found == (f"pod default/p has the annotation {DO_NOT}: {annotation}{ends}" if until else "")


def test_do_not_disrupt_holds_for_daemonset_pods_and_not_for_those_that_end() -> None:
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


WEB: dict[str, Any] = {"labels": {"app": "web"}}


@pytest.mark.parametrize(
    ("budgets", "pods", "message"),
    [
        ([pdb("a", "app In web")], WEB, "pod default/p: PodDisruptionBudget default/a allows no disruption now"),
        ([pdb("a", "app In web", disruptions_allowed=1)], WEB, ""),
        ([pdb("a", "app In db")], WEB, ""),
        ([pdb("a", "app In web", namespace="other")], WEB, ""),
        ([pdb("a", "app In web", always_allow_unhealthy=True)], WEB | {"ready": False}, ""),
        (
            [pdb("a", "app In web", always_allow_unhealthy=True)],
            WEB | {"ready": True},
            "pod default/p: PodDisruptionBudget default/a allows no disruption now",
        ),
        (
            [pdb("a", "app In web", disruptions_allowed=1), pdb("b", "app Exists", disruptions_allowed=1)],
            WEB,
            "pod default/p is selected by 2 PodDisruptionBudgets (a, b), and then nothing may evict it",
        ),
        ([pdb("a", "app In web")], WEB | {"mirror": True}, ""),
        ([pdb("a", "app In web")], WEB | {"tolerations": (toleration("karpenter.sh/disrupted"),)}, ""),
    ],
)
def test_pod_disruption_budgets(budgets: list[Any], pods: dict[str, Any], message: str) -> None:
    found = causes(verdict(Fleet(facts=budgets).node("n", "m.large", pod("p", **pods))))
    assert found.get("PodDisruptionBudget", "") == message


def test_all_causes_are_said_and_one_by_one_for_each_pod() -> None:
    fleet = Fleet(facts=[pdb("a", "app In web")])
    fleet.node(
        "n", "m.large", pod("p", **WEB), pod("q", do_not_disrupt="true", **WEB), node={"annotations": {DO_NOT: "true"}}
    )
    found = [one.cause for one in verdict(fleet, nominated=("n",)).excluded]
    assert found == ["Nominated", "NodeDoNotDisrupt", "PodDisruptionBudget", "PodDoNotDisrupt", "PodDisruptionBudget"]


def test_with_a_grace_period_drift_takes_a_node_in_spite_of_its_pods() -> None:
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
def test_what_the_pool_says(of: dict[str, Any], pods: int, eligible: tuple[str, ...], cause: str) -> None:
    fleet = Fleet(pool(**of)).node("n", "m.large", *[pod() for _ in range(pods)])
    found = verdict(fleet)
    assert found.eligible == eligible
    assert set(causes(found)) == ({cause} if cause else set())


def test_rest_counts_from_the_last_pod_that_came_or_left() -> None:
    fleet = Fleet(pool(consolidate_after="30m")).node("n", "m.large", last_pod_event=NOW - timedelta(minutes=10))
    (found,) = verdict(fleet).excluded
    assert found.until == NOW + timedelta(minutes=20)
    assert found.message == "consolidateAfter 30m of NodePool default ends at 2026-01-02T03:24:05+00:00"


def test_drift_does_not_wait_for_rest() -> None:
    fleet = Fleet(pool(consolidate_after="Never")).node("n", "m.large", pod(), drifted="NodePoolDrifted")
    assert verdict(fleet).eligible == ("Drifted",)


def test_a_young_node_stays_until_it_is_old_enough() -> None:
    young = DisruptionBudgets(youngest={"default": timedelta(hours=2)})
    (found,) = verdict(Fleet().node("n", "m.large"), allowed_disruptions=young).excluded
    assert (found.cause, found.until) == ("TooYoung", NOW + timedelta(hours=1))


def test_a_pool_that_is_not_there_or_closed() -> None:
    fleet = Fleet().node("n", "m.large")
    fleet.nodeclaims["n"] = fleet.nodeclaims["n"].model_copy(update={"pool": "gone"})
    assert "NoPool" in causes(verdict(fleet))
    closed = Fleet(pool(node_class="unknown")).node("n", "m.large")
    assert causes(verdict(closed))["PoolClosed"].endswith("EC2NodeClass unknown has no instance types yet")


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ({"node.kubernetes.io/instance-type": "x.large"}, "NoInstanceType"),
        ({"karpenter.sh/capacity-type": ""}, "NoCapacityType"),
        ({"topology.kubernetes.io/zone": ""}, "NoZone"),
        ({"topology.kubernetes.io/zone": "elsewhere"}, "NoPrice"),
    ],
)
def test_what_has_to_be_known_to_compare_prices(labels: dict[str, str], cause: str) -> None:
    assert set(causes(verdict(Fleet().node("n", "m.large", pod(), labels=labels)))) == {cause}
    assert verdict(Fleet().node("n", "m.large", labels=labels)).eligible == ("Empty",)


def test_priority_and_deletion_cost_make_a_node_dearer_to_move() -> None:
    fleet = Fleet().node(
        "n", "m.large", pod(priority=1 << 25), pod(deletion_cost=-(1 << 28)), pod(priority=2_000_000_000), pod()
    )
    assert verdict(fleet).cost == 1.0 + 2.0 + 0.0 + 10.0 + 1.0


def test_a_reserved_node_has_the_price_of_its_reservation() -> None:
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


def test_a_node_of_nobody_is_not_listed() -> None:
    fleet = Fleet().node("n", "m.large")
    fleet.nodeclaims["n"] = fleet.nodeclaims["n"].model_copy(update={"pool": ""})
    assert fleet.decide().nodes == ()


def test_an_excluded_node_may_still_take_pods() -> None:
    """Room is 8 CPU on the one that may not go: both pods move there."""
    fleet = Fleet().node("big", "m.2xlarge", pod(do_not_disrupt="true")).node("n", "m.xlarge", pod(), pod())
    assert disrupted_nodes(fleet.decide()) == {"n"}
