"""Plans for pods with volumes: in the zones of these, and within what CSI drivers attach."""

from collections import Counter

from tenure.apis.labels import HOSTNAME, ZONE
from tenure.model.facts import PodFact, StorageFact
from tenure.model.plan import Plan
from tenure.scheduling.snapshot import Fact
from tests.unit.scheduling.builders import (
    Cluster,
    csi_node,
    expressions,
    instance_type,
    launched_nodeclaim,
    node,
    nodeclaim,
    pod,
    pool,
    pvc,
    reasons,
    storage_class,
    values_of,
    volume,
)
from tests.unit.scheduling.packing.test_topology import APP, build_cluster, by_zone, spread, term

WAITS = storage_class("gp3", f"{ZONE} In b c")


def in_zone(name: str, zone: str) -> tuple[StorageFact, StorageFact]:
    """A claim and the volume that it is bound to."""
    return pvc(name, volume=f"pv-{name}"), volume(f"pv-{name}", f"topology.ebs.csi.aws.com/zone In {zone}")


def disks(number: int, *, of: str = "gp3") -> tuple[list[StorageFact], list[PodFact]]:
    """Claims that wait for their volume, and a pod for each."""
    names = [f"d{index}" for index in range(number)]
    return [pvc(name, of=of) for name in names], [pod(f"p{name}", cpu=0.1, volumes=(name,)) for name in names]


# --- where ---


def test_a_new_node_is_in_the_zone_of_the_volume() -> None:
    plan = build_cluster(pool(), *in_zone("data", "b"), pod(volumes=("data",))).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("b",)]


def test_a_volume_that_waits_leaves_the_zones_of_its_class_open() -> None:
    plan = build_cluster(pool(), WAITS, pvc("data", of="gp3"), pod(volumes=("data",))).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("b", "c")]


def test_pods_whose_volumes_are_in_different_zones_share_no_node() -> None:
    plan = build_cluster(
        pool(), *in_zone("x", "a"), *in_zone("y", "b"), pod(volumes=("x",)), pod(volumes=("y",)), pod(cpu=0.5)
    ).plan()
    assert sorted(values_of(one, ZONE) for one in plan.claims) == [("a",), ("b",)]


def test_a_node_that_stands_takes_only_pods_whose_volumes_are_in_its_zone() -> None:
    there = node("n", labels={ZONE: "a"})
    plan = build_cluster(
        pool(), there, *in_zone("x", "a"), *in_zone("y", "b"), *(pod(v, volumes=(v,)) for v in "xy")
    ).plan()
    assert plan.nominations == {"x": "n"} and [one.pods for one in plan.claims] == [("y",)]


def test_a_volume_that_a_node_alone_can_reach_takes_its_pod_there_or_nowhere() -> None:
    pinned = [pvc("data", volume="v"), volume("v", f"{HOSTNAME} In n2", driver="lvm.csi")]
    nodes = [node("n1"), node("n2")]
    assert build_cluster(pool(), *nodes, *pinned, pod("p", volumes=("data",))).plan().nominations == {"p": "n2"}
    (reason,) = reasons(build_cluster(pool(), nodes[0], *pinned, pod("p", volumes=("data",))).plan())
    assert "its volumes need kubernetes.io/hostname In [n2]" in reason


def test_each_place_of_a_volume_is_tried() -> None:
    two = volume("v", expressions(f"{ZONE} In z", "disk In x"), expressions(f"{ZONE} In b", "site In y"))
    plan = build_cluster(
        pool(template_labels={"site": "y"}), pvc("data", volume="v"), two, pod(volumes=("data",))
    ).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("b",)]


def test_each_place_goes_with_each_alternative_of_the_pods_own() -> None:
    picky = pod(volumes=("data",), terms=(expressions(f"{ZONE} In a"), expressions(f"{ZONE} In c")))
    plan = build_cluster(pool(), *in_zone("data", "c"), picky).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("c",)]


def test_a_preference_for_another_zone_gives_way_to_the_volume() -> None:
    plan = build_cluster(pool(), *in_zone("data", "c"), pod(volumes=("data",), preferred={f"{ZONE} In a": 9})).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("c",)] and not plan.unschedulable


def test_a_pod_that_excludes_its_volume_is_told_so() -> None:
    plan = build_cluster(pool(), *in_zone("data", "c"), pod(volumes=("data",), selector={ZONE: "a"})).plan()
    assert reasons(plan) == [
        "its volumes need a node with topology.kubernetes.io/zone In [c], while its node selector and affinity ask for "
        "topology.kubernetes.io/zone In [a]"
    ]


def test_a_zone_in_which_nothing_is_sold_is_told_with_the_volume() -> None:
    (reason,) = reasons(build_cluster(pool(), *in_zone("data", "z"), pod(volumes=("data",))).plan())
    assert reason.endswith("; its volumes need topology.kubernetes.io/zone In [z]")


def test_a_pod_that_is_refused_hurts_no_other() -> None:
    plan = build_cluster(pool(), pod("bad", volumes=("none",)), pod("good")).plan()
    assert reasons(plan) == ["PersistentVolumeClaim default/none does not exist; create it"]
    assert [one.pods for one in plan.claims] == [("good",)]


def test_a_claim_that_comes_later_is_planned_for() -> None:
    here = build_cluster(pool(), WAITS, pod(volumes=("data",)))
    assert here.plan().unschedulable
    here.add(pvc("data", of="gp3"))
    assert not here.plan().unschedulable and here.plan().claims


# --- with other pods ---


def test_a_spread_counts_zones_that_the_volumes_leave_out() -> None:
    """The zones a and c are empty and remain so, since the pods themselves could go there."""
    claims = [one for name in ("x", "y") for one in in_zone(name, "b")]
    members = [pod(name, labels=APP, spreads=spread(), volumes=(name,)) for name in ("x", "y")]
    plan = build_cluster(pool(), *claims, *members).plan()
    assert by_zone(plan) == {"b": 1}
    assert "topology spread on topology.kubernetes.io/zone" in reasons(plan)[0]
    assert "its volumes need topology.kubernetes.io/zone In [b]" in reasons(plan)[0]


def test_a_spread_over_the_zones_that_volumes_may_be_made_in() -> None:
    facts = [pvc(f"d{index}", of="gp3") for index in range(4)]
    members = [pod(labels=APP, spreads=spread(max_skew=2), volumes=(f"d{index}",)) for index in range(4)]
    plan = build_cluster(pool(), WAITS, *facts, *members).plan()
    assert by_zone(plan) == {"b": 2, "c": 2} and not plan.unschedulable


def test_alternatives_keep_a_spread_that_is_wished_for() -> None:
    each = storage_class("each", f"{ZONE} In a", f"{ZONE} In b", f"{ZONE} In c")
    facts = [pvc(f"d{index}", of="each") for index in range(6)]
    members = [pod(labels=APP, spreads=spread(hard=False), volumes=(f"d{index}",)) for index in range(6)]
    assert by_zone(build_cluster(pool(), each, *facts, *members).plan()) == {"a": 2, "b": 2, "c": 2}


def test_pods_that_want_to_be_together_meet_where_the_volume_is() -> None:
    plan = build_cluster(
        pool(), *in_zone("x", "c"), pod(labels=APP, affinity=term(), cpu=0.5), pod(labels=APP, volumes=("x",))
    ).plan()
    assert not plan.unschedulable and by_zone(plan)["c"] >= 1


# --- how many ---


def nominated(plan: Plan) -> Counter[str]:
    return Counter(plan.nominations.values())


def test_a_node_takes_no_more_volumes_than_its_driver_attaches() -> None:
    claims, members = disks(5)
    plan = build_cluster(pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"}), csi_node("n", 3)).plan()
    assert nominated(plan) == {"n": 3} and [len(one.pods) for one in plan.claims] == [2]


def test_volumes_of_pods_that_run_there_are_attached_already() -> None:
    claims, members = disks(3)
    here = [pod(node="n", cpu=0.1, volumes=("r1", "r2")), pvc("r1", of="gp3"), pvc("r2", of="gp3")]
    plan = build_cluster(
        pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"}), csi_node("n", 3), *here
    ).plan()
    assert nominated(plan) == {"n": 1}


def test_other_drivers_have_limits_of_their_own() -> None:
    claims, members = disks(3)
    here = [node("n", labels={ZONE: "b"}), csi_node("n", 0, driver="efs.csi.aws.com")]
    assert nominated(build_cluster(pool(), WAITS, *claims, *members, *here).plan()) == {"n": 3}


def test_a_node_without_csinode_is_unlimited() -> None:
    claims, members = disks(9)
    assert nominated(build_cluster(pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"})).plan()) == {"n": 9}


def test_a_claim_that_several_pods_use_counts_once_on_a_node() -> None:
    members = [pod(cpu=0.1, volumes=("shared",)) for _ in range(5)]
    here = [node("n", labels={ZONE: "b"}), csi_node("n", 1)]
    assert nominated(build_cluster(pool(), WAITS, pvc("shared", of="gp3"), *members, *here).plan()) == {"n": 5}


def test_a_full_node_still_takes_pods_whose_volume_is_there() -> None:
    here = [node("n", labels={ZONE: "b"}), csi_node("n", 1), pod(node="n", cpu=0.1, volumes=("shared",))]
    plan = build_cluster(pool(), WAITS, pvc("shared", of="gp3"), pod("p", cpu=0.1, volumes=("shared",)), *here).plan()
    assert plan.nominations == {"p": "n"}
    other = build_cluster(
        pool(), WAITS, pvc("s", of="gp3"), pvc("shared", of="gp3"), pod(cpu=0.1, volumes=("s",)), *here
    )
    assert not other.plan().nominations


def test_pods_with_a_shared_and_an_own_volume() -> None:
    claims, _ = disks(4)
    members = [pod(cpu=0.1, volumes=("shared", f"d{index}")) for index in range(4)]
    here = [node("n", labels={ZONE: "b"}), csi_node("n", 3)]
    plan = build_cluster(pool(), WAITS, pvc("shared", of="gp3"), *claims, *members, *here).plan()
    assert nominated(plan) == {"n": 2}


def test_a_pod_with_several_volumes_needs_room_for_all_of_them() -> None:
    claims, _ = disks(6)
    members = [pod(cpu=0.1, volumes=(f"d{index}", f"d{index + 1}")) for index in (0, 2, 4)]
    here = [node("n", labels={ZONE: "b"}), csi_node("n", 5)]
    assert nominated(build_cluster(pool(), WAITS, *claims, *members, *here).plan()) == {"n": 2}


def test_a_promised_place_is_kept_only_while_its_driver_can_attach() -> None:
    claims, members = disks(2)
    big = instance_type("m.2xlarge", cpu=8, memory=32)
    here = Cluster(pool(), WAITS, *claims, *members, instance_types=(big,))
    bought = here.plan()
    ((name, planned),) = here.commit(bought).items()
    started = launched_nodeclaim(name, planned, big, zone="b")
    there = node("n", labels={**started.labels, ZONE: "b"}, provider_id=started.provider_id)
    arrived: list[Fact] = [there, nodeclaim(name, on=there, labels=started.labels), csi_node("n", 1)]
    here.add(*arrived)
    replanned = here.plan(after=30)
    assert nominated(replanned) == {"n": 1} and [len(one.pods) for one in replanned.claims] == [1]


def test_pods_are_one_class_whatever_their_claims_are_called() -> None:
    """A thousand members of a StatefulSet are planned like one."""
    claims, members = disks(1000)
    plan = build_cluster(pool(), WAITS, *claims, *members).plan()
    assert not plan.unschedulable and {values_of(one, ZONE) for one in plan.claims} == {("b", "c")}
