"""Plans for pods with volumes: zones of the volumes and limits of CSI drivers."""

from collections import Counter

import pytest

from tenure.apis.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from tenure.model.facts import CSINodeFact, PodFact, StorageFact
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
    """A claim and its bound volume in `zone`."""
    return pvc(name, volume=f"pv-{name}"), volume(f"pv-{name}", f"topology.ebs.csi.aws.com/zone In {zone}")


def disks(number: int, *, of: str = "gp3") -> tuple[list[StorageFact], list[PodFact]]:
    """Unbound claims, and one pod per claim."""
    names = [f"d{index}" for index in range(number)]
    return [pvc(name, of=of) for name in names], [pod(f"p{name}", cpu=0.1, volumes=(name,)) for name in names]


UNKNOWN = "spec.rackAffinity: Tenure does not know this field"


@pytest.mark.parametrize(
    ("storage", "subject"),
    [
        (
            [pvc("data", volume="v"), volume("v", unknown_field=UNKNOWN)],
            "PersistentVolumeClaim default/data names PersistentVolume v",
        ),
        (
            [pvc("data", of="gp3"), WAITS.model_copy(update={"unknown_field": UNKNOWN})],
            "PersistentVolumeClaim default/data: StorageClass gp3",
        ),
    ],
    ids=["PersistentVolume", "StorageClass"],
)
def test_unknown_field_of_a_volume_or_class_makes_its_pod_unplannable(storage: list[StorageFact], subject: str) -> None:
    plan = build_cluster(pool(), node("n"), *storage, pod("p", volumes=("data",)), pod("other")).plan()
    assert plan.nominations == {"other": "n"} and not plan.claims
    assert reasons(plan) == [f"{subject}: {UNKNOWN}"]


# --- zones ---


def test_pods_with_volumes_in_different_zones_share_no_node() -> None:
    plan = build_cluster(
        pool(), *in_zone("x", "a"), *in_zone("y", "b"), pod(volumes=("x",)), pod(volumes=("y",)), pod(cpu=0.5)
    ).plan()
    assert sorted(values_of(one, ZONE) for one in plan.claims) == [("a",), ("b",)]


def test_existing_node_takes_only_pods_with_volumes_in_its_zone() -> None:
    there = node("n", labels={ZONE: "a"})
    plan = build_cluster(
        pool(), there, *in_zone("x", "a"), *in_zone("y", "b"), *(pod(v, volumes=(v,)) for v in "xy")
    ).plan()
    assert plan.nominations == {"x": "n"} and [one.pods for one in plan.claims] == [("y",)]


def test_volume_pinned_to_a_node_pins_its_pod() -> None:
    pinned = [pvc("data", volume="v"), volume("v", f"{HOSTNAME} In n2", driver="lvm.csi")]
    nodes = [node("n1"), node("n2")]
    assert build_cluster(pool(), *nodes, *pinned, pod("p", volumes=("data",))).plan().nominations == {"p": "n2"}
    (reason,) = reasons(build_cluster(pool(), nodes[0], *pinned, pod("p", volumes=("data",))).plan())
    assert "its volumes need kubernetes.io/hostname In [n2]" in reason


def test_each_node_affinity_term_of_a_volume_is_tried() -> None:
    two = volume("v", expressions(f"{ZONE} In z", "disk In x"), expressions(f"{ZONE} In b", "site In y"))
    plan = build_cluster(
        pool(template_labels={"site": "y"}), pvc("data", volume="v"), two, pod(volumes=("data",))
    ).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("b",)]


def test_volume_terms_combine_with_node_affinity_terms() -> None:
    picky = pod(volumes=("data",), terms=(expressions(f"{ZONE} In a"), expressions(f"{ZONE} In c")))
    plan = build_cluster(pool(), *in_zone("data", "c"), picky).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("c",)]


def test_preference_for_another_zone_is_dropped_for_the_volume() -> None:
    plan = build_cluster(pool(), *in_zone("data", "c"), pod(volumes=("data",), preferred={f"{ZONE} In a": 9})).plan()
    assert [values_of(one, ZONE) for one in plan.claims] == [("c",)] and not plan.unschedulable


def test_pod_that_excludes_the_zone_of_its_volume_has_a_reason() -> None:
    plan = build_cluster(pool(), *in_zone("data", "c"), pod(volumes=("data",), selector={ZONE: "a"})).plan()
    assert reasons(plan) == [
        "its volumes need a node with topology.kubernetes.io/zone In [c], while its node selector and affinity ask for "
        "topology.kubernetes.io/zone In [a]"
    ]


def test_reason_for_a_zone_without_offerings_names_the_volume() -> None:
    (reason,) = reasons(build_cluster(pool(), *in_zone("data", "z"), pod(volumes=("data",))).plan())
    assert reason.endswith("; its volumes need topology.kubernetes.io/zone In [z]")


def test_rejected_pod_does_not_affect_others() -> None:
    plan = build_cluster(pool(), pod("bad", volumes=("none",)), pod("good")).plan()
    assert reasons(plan) == ["PersistentVolumeClaim default/none does not exist; create it"]
    assert [one.pods for one in plan.claims] == [("good",)]


def test_later_volume_claim_makes_its_pod_schedulable() -> None:
    cluster = build_cluster(pool(), WAITS, pod(volumes=("data",)))
    assert cluster.plan().unschedulable
    cluster.add(pvc("data", of="gp3"))
    assert not cluster.plan().unschedulable and cluster.plan().claims


# --- with other pods ---


def test_spread_counts_zones_excluded_by_volumes() -> None:
    """Zones a and c count although they stay empty, because the node affinity of the pods allows them."""
    claims = [one for name in ("x", "y") for one in in_zone(name, "b")]
    members = [pod(name, labels=APP, spreads=spread(), volumes=(name,)) for name in ("x", "y")]
    plan = build_cluster(pool(), *claims, *members).plan()
    assert by_zone(plan) == {"b": 1}
    assert "topology spread on topology.kubernetes.io/zone" in reasons(plan)[0]
    assert "its volumes need topology.kubernetes.io/zone In [b]" in reasons(plan)[0]


def test_pods_with_unbound_volumes_are_spread_over_allowed_zones() -> None:
    facts = [pvc(f"d{index}", of="gp3") for index in range(4)]
    members = [pod(labels=APP, spreads=spread(max_skew=2), volumes=(f"d{index}",)) for index in range(4)]
    plan = build_cluster(pool(), WAITS, *facts, *members).plan()
    assert by_zone(plan) == {"b": 2, "c": 2} and not plan.unschedulable


def test_volume_alternatives_keep_a_schedule_anyway_spread() -> None:
    each = storage_class("each", f"{ZONE} In a", f"{ZONE} In b", f"{ZONE} In c")
    facts = [pvc(f"d{index}", of="each") for index in range(6)]
    members = [pod(labels=APP, spreads=spread(hard=False), volumes=(f"d{index}",)) for index in range(6)]
    assert by_zone(build_cluster(pool(), each, *facts, *members).plan()) == {"a": 2, "b": 2, "c": 2}


def test_pods_with_affinity_join_the_zone_of_the_volume() -> None:
    plan = build_cluster(
        pool(), *in_zone("x", "c"), pod(labels=APP, affinity=term(), cpu=0.5), pod(labels=APP, volumes=("x",))
    ).plan()
    assert not plan.unschedulable and by_zone(plan)["c"] >= 1


# --- limits ---


def nominated(plan: Plan) -> Counter[str]:
    return Counter(plan.nominations.values())


def test_node_takes_no_more_volumes_than_its_driver_attaches() -> None:
    claims, members = disks(5)
    plan = build_cluster(pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"}), csi_node("n", 3)).plan()
    assert nominated(plan) == {"n": 3} and [len(one.pods) for one in plan.claims] == [2]


def test_volumes_of_running_pods_count_against_the_limit() -> None:
    claims, members = disks(3)
    nodes_and_pods = [pod(node="n", cpu=0.1, volumes=("r1", "r2")), pvc("r1", of="gp3"), pvc("r2", of="gp3")]
    plan = build_cluster(
        pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"}), csi_node("n", 3), *nodes_and_pods
    ).plan()
    assert nominated(plan) == {"n": 1}


def test_limits_apply_per_driver() -> None:
    claims, members = disks(3)
    nodes_and_pods = [node("n", labels={ZONE: "b"}), csi_node("n", 0, driver="efs.csi.aws.com")]
    assert nominated(build_cluster(pool(), WAITS, *claims, *members, *nodes_and_pods).plan()) == {"n": 3}


def test_node_without_csinode_is_unlimited() -> None:
    claims, members = disks(9)
    assert nominated(build_cluster(pool(), WAITS, *claims, *members, node("n", labels={ZONE: "b"})).plan()) == {"n": 9}


def test_shared_claim_counts_once_per_node() -> None:
    members = [pod(cpu=0.1, volumes=("shared",)) for _ in range(5)]
    nodes_and_pods = [node("n", labels={ZONE: "b"}), csi_node("n", 1)]
    assert nominated(build_cluster(pool(), WAITS, pvc("shared", of="gp3"), *members, *nodes_and_pods).plan()) == {
        "n": 5
    }


def test_full_node_takes_pods_with_an_attached_volume() -> None:
    nodes_and_pods = [node("n", labels={ZONE: "b"}), csi_node("n", 1), pod(node="n", cpu=0.1, volumes=("shared",))]
    plan = build_cluster(
        pool(), WAITS, pvc("shared", of="gp3"), pod("p", cpu=0.1, volumes=("shared",)), *nodes_and_pods
    ).plan()
    assert plan.nominations == {"p": "n"}
    other = build_cluster(
        pool(), WAITS, pvc("s", of="gp3"), pvc("shared", of="gp3"), pod(cpu=0.1, volumes=("s",)), *nodes_and_pods
    )
    assert not other.plan().nominations


def test_shared_and_own_volumes_count_together() -> None:
    claims, _ = disks(4)
    members = [pod(cpu=0.1, volumes=("shared", f"d{index}")) for index in range(4)]
    nodes_and_pods = [node("n", labels={ZONE: "b"}), csi_node("n", 3)]
    plan = build_cluster(pool(), WAITS, pvc("shared", of="gp3"), *claims, *members, *nodes_and_pods).plan()
    assert nominated(plan) == {"n": 2}


def test_nomination_is_kept_only_within_the_volume_limit() -> None:
    claims, members = disks(2)
    big = instance_type("m.2xlarge", cpu=8, memory=32)
    cluster = Cluster(pool(), WAITS, *claims, *members, instance_types=(big,))
    first_plan = cluster.plan()
    ((name, planned),) = cluster.commit(first_plan).items()
    started = launched_nodeclaim(name, planned, big, zone="b")
    there = node("n", labels={**started.labels, ZONE: "b"}, provider_id=started.provider_id)
    arrived: list[Fact] = [there, nodeclaim(name, on=there, labels=started.labels), csi_node("n", 1)]
    cluster.add(*arrived)
    replanned = cluster.plan(after=30)
    assert nominated(replanned) == {"n": 1} and [len(one.pods) for one in replanned.claims] == [1]


def test_pods_with_differently_named_claims_form_one_class() -> None:
    """A thousand pods of a StatefulSet are planned as one class."""
    claims, members = disks(1000)
    plan = build_cluster(pool(), WAITS, *claims, *members).plan()
    assert not plan.unschedulable and {values_of(one, ZONE) for one in plan.claims} == {("b", "c")}


# --- limits of instance types ---

FEW = instance_type("s.2xlarge", cpu=8, memory=32, price=0.3, ebs_attachments=4)
MANY = instance_type("l.2xlarge", cpu=8, memory=32, price=0.5, ebs_attachments=12)
UNLIMITED_CSI_NODE = CSINodeFact(name="n", unlimited_drivers=frozenset({"ebs.csi.aws.com"}))
ON_FEW = {ZONE: "b", INSTANCE_TYPE: FEW.name}


def test_new_node_gets_no_more_volumes_than_its_type_attaches() -> None:
    claims, members = disks(10)
    plan = Cluster(pool(), WAITS, *claims, *members, instance_types=(FEW,)).plan()
    assert sorted(len(one.pods) for one in plan.claims) == [2, 4, 4] and not plan.unschedulable


def test_pod_with_many_volumes_gets_a_type_that_attaches_them() -> None:
    claims, _ = disks(9)
    cluster = Cluster(pool(), WAITS, *claims, instance_types=(FEW, MANY))
    cluster.add(pod("p", cpu=0.1, volumes=tuple(f"d{index}" for index in range(9))))
    (planned,) = cluster.plan().claims
    assert values_of(planned, INSTANCE_TYPE) == (MANY.name,)
    assert not [key for key in planned.requests if key.startswith("attachable-volumes")]


def test_pod_with_more_volumes_than_any_type_attaches_is_rejected() -> None:
    claims, _ = disks(13)
    cluster = Cluster(pool(), WAITS, *claims, instance_types=(FEW, MANY))
    cluster.add(pod("p", cpu=0.1, volumes=tuple(f"d{index}" for index in range(13))))
    plan = cluster.plan()
    assert not plan.claims and "13 attachable-volumes-csi-ebs.csi.aws.com" in reasons(plan)[0]


def test_volumes_of_other_drivers_have_no_limit_on_new_nodes() -> None:
    shared_storage = storage_class("efs", f"{ZONE} In b c", driver="efs.csi.aws.com")
    claims, members = disks(10, of="efs")
    plan = Cluster(pool(), shared_storage, *claims, *members, instance_types=(FEW,)).plan()
    assert [len(one.pods) for one in plan.claims] == [10]


def test_shared_volume_counts_once_on_a_new_node() -> None:
    members = [pod(cpu=0.1, volumes=("shared",)) for _ in range(10)]
    plan = Cluster(pool(), WAITS, pvc("shared", of="gp3"), *members, instance_types=(FEW,)).plan()
    assert [len(one.pods) for one in plan.claims] == [10]


@pytest.mark.parametrize(
    ("csi_nodes", "expected"),
    [([], 4), ([csi_node("n", 9, driver="efs.csi.aws.com")], 4), ([csi_node("n", 6)], 6), ([UNLIMITED_CSI_NODE], 10)],
    ids=["no CSINode", "driver not listed", "limit", "driver without limit"],
)
def test_limit_of_the_type_counts_until_the_csinode_lists_the_driver(
    csi_nodes: list[StorageFact], expected: int
) -> None:
    claims, members = disks(10)
    there = node("n", labels=ON_FEW)
    plan = Cluster(pool(), WAITS, *claims, *members, there, *csi_nodes, instance_types=(FEW,)).plan()
    assert nominated(plan)["n"] == expected


def test_unregistered_node_has_the_limit_of_its_type() -> None:
    claims, members = disks(6)
    cluster = Cluster(pool(), WAITS, *claims[:4], *members[:4], instance_types=(FEW,))
    first_plan = cluster.plan()
    ((name, planned),) = cluster.commit(first_plan).items()
    cluster.add(launched_nodeclaim(name, planned, FEW, zone="b"), *claims[4:], *members[4:])
    replanned = cluster.plan(after=5)
    assert sum(nominated(replanned).values()) == 4 and [len(one.pods) for one in replanned.claims] == [2]
