"""The validator finds each mistake with volumes when a good plan is spoilt with it."""

from collections.abc import Iterable

import pytest

from tenure.apis.labels import HOSTNAME, ZONE
from tenure.model.facts import CSINodeFact, PodFact, StorageClassFact, StorageFact, VolumeClaimFact, VolumeFact
from tenure.model.provisioning import Plan, PlannedClaim
from tenure.scheduling.validation.plan import Given, violations
from tenure.scheduling.validation.volumes import Disks
from tests.unit.scheduling.builders import (
    COMMON,
    World,
    csi_node,
    expressions,
    node,
    pod,
    pool,
    pvc,
    storage_class,
    volume,
)

POOL, NODE = pool(), node("n", cpu=8, labels={ZONE: "a"})
STORAGE: tuple[StorageFact, ...] = (
    pvc("in-a", volume="v-a"),
    volume("v-a", f"{ZONE} In a"),
    pvc("in-b", volume="v-b"),
    volume("v-b", "topology.ebs.csi.aws.com/zone In b"),
    pvc("waits", of="gp3"),
    pvc("waits-too", of="gp3"),
    storage_class("gp3", f"{ZONE} In a", f"{ZONE} In b"),
    csi_node("n", 1),
)
PODS = (pod("near", volumes=("in-a",)), pod("far", volumes=("in-b",)))
RUNNING = pod("runs", node="n", cpu=0.1, volumes=("shared",))


def given(pods: Iterable[PodFact] = PODS, storage: Iterable[StorageFact] = STORAGE, *running: PodFact) -> Given:
    facts = list(storage)
    return Given(
        pods={one.uid: one for one in pods},
        pools={"default": POOL},
        types={one.name: one for one in COMMON},
        nodes={"n": NODE},
        bound={"n": running},
        disks=Disks(
            claims={one.key: one for one in facts if isinstance(one, VolumeClaimFact)},
            volumes={one.name: one for one in facts if isinstance(one, VolumeFact)},
            classes={one.name: one for one in facts if isinstance(one, StorageClassFact)},
            csi_nodes={one.name: one for one in facts if isinstance(one, CSINodeFact)},
        ),
    )


def planned() -> Plan:
    return World(POOL, NODE, *PODS, *STORAGE).plan()


def on(claims: tuple[PlannedClaim, ...] = (), **nominations: str) -> Plan:
    return Plan(claims=claims, nominations=nominations)


def test_a_good_plan_has_no_violation() -> None:
    plan = planned()
    assert plan.nominations == {"near": "n"} and plan.claims
    assert violations(plan, given()) == []


def test_a_claim_in_the_wrong_zone_is_found() -> None:
    (good,) = planned().claims
    zone = expressions(f"{ZONE} In a b")
    wider = good.model_copy(update={"requirements": (*(one for one in good.requirements if one.key != ZONE), *zone)})
    assert any("far does not reach in-b on" in one for one in violations(on((wider,), near="n"), given()))


def test_a_node_in_the_wrong_zone_is_found() -> None:
    assert "node n: far does not reach in-b" in violations(on(far="n", near="n"), given(PODS, STORAGE[:-1]))


def test_more_volumes_than_a_driver_attaches_are_found() -> None:
    pods = (pod("one", volumes=("waits",)), pod("two", volumes=("waits-too",)))
    assert violations(on(one="n", two="n"), given(pods)) == ["node n: 2 volumes of ebs.csi.aws.com, which attaches 1"]


def test_a_claim_that_is_there_already_counts_once() -> None:
    storage = (*STORAGE, pvc("shared", of="gp3"))
    same, other = pod("same", volumes=("shared",)), pod("other", volumes=("waits",))
    assert violations(on(same="n"), given([same], storage, RUNNING)) == []
    assert violations(on(other="n"), given([other], storage, RUNNING))


@pytest.mark.parametrize(
    "storage",
    [
        [],
        [pvc("x", volume="v", deleting=True), volume("v")],
        [pvc("x", volume="v", lost=True), volume("v")],
        [pvc("x", volume="v")],
        [pvc("x", volume="v"), volume("v", deleting=True)],
        [pvc("x", volume="v", bound=False), volume("v")],
        [pvc("x", volume="v"), volume("v", driver="ebs.csi.eks.amazonaws.com")],
        [pvc("x")],
        [pvc("x", of="gp3")],
        [pvc("x", of="gp3"), storage_class("gp3", waits=False)],
        [pvc("x", of="gp3"), storage_class("gp3", "eks.amazonaws.com/compute-type In auto")],
    ],
)
def test_a_pod_that_cannot_be_planned_for_must_have_no_place(storage: list[StorageFact]) -> None:
    found = violations(on(p="n"), given([pod("p", volumes=("x",))], storage))
    assert any(one.startswith("pod p: ") for one in found)


def test_a_local_volume_is_given_up_with_its_node() -> None:
    here = expressions(f"{HOSTNAME} In n9", f"{ZONE} In a")
    for local, wrong in ((True, []), (False, ["node n: p does not reach x"])):
        storage: list[StorageFact] = [pvc("x", volume="v"), volume("v", here, local=local)]
        assert violations(on(p="n"), given([pod("p", volumes=("x",))], storage)) == wrong
