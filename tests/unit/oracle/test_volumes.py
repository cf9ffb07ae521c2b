"""The plan validator reports each kind of volume mistake in a modified plan."""

from collections.abc import Iterable

import pytest

from tenure.apis.labels import HOSTNAME, ZONE
from tenure.model.facts import CSINodeFact, PodFact, StorageClassFact, StorageFact, VolumeClaimFact, VolumeFact
from tenure.model.plan import Plan, PlannedNodeClaim
from tests.oracle.plan import PlanInputs, find_violations
from tests.oracle.volumes import StorageInputs
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
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


def plan_inputs(
    pods: Iterable[PodFact] = PODS, storage: Iterable[StorageFact] = STORAGE, *running: PodFact
) -> PlanInputs:
    facts = list(storage)
    return PlanInputs(
        pods={one.uid: one for one in pods},
        pools={"default": POOL},
        types={one.name: one for one in COMMON},
        nodes={"n": NODE},
        bound={"n": running},
        disks=StorageInputs(
            claims={one.key: one for one in facts if isinstance(one, VolumeClaimFact)},
            volumes={one.name: one for one in facts if isinstance(one, VolumeFact)},
            classes={one.name: one for one in facts if isinstance(one, StorageClassFact)},
            csi_nodes={one.name: one for one in facts if isinstance(one, CSINodeFact)},
        ),
    )


def plan_cluster() -> Plan:
    return Cluster(POOL, NODE, *PODS, *STORAGE).plan()


def plan_of(claims: tuple[PlannedNodeClaim, ...] = (), **nominations: str) -> Plan:
    return Plan(claims=claims, nominations=nominations)


def test_valid_plan_has_no_violation() -> None:
    plan = plan_cluster()
    assert plan.nominations == {"near": "n"} and plan.claims
    assert find_violations(plan, plan_inputs()) == []


def test_nodeclaim_in_wrong_zone_is_reported() -> None:
    (good,) = plan_cluster().claims
    zone = expressions(f"{ZONE} In a b")
    wider = good.model_copy(update={"requirements": (*(one for one in good.requirements if one.key != ZONE), *zone)})
    assert any(
        "far does not reach in-b on" in one for one in find_violations(plan_of((wider,), near="n"), plan_inputs())
    )


def test_node_in_wrong_zone_is_reported() -> None:
    assert "node n: far does not reach in-b" in find_violations(
        plan_of(far="n", near="n"), plan_inputs(PODS, STORAGE[:-1])
    )


def test_exceeded_attach_limit_is_reported() -> None:
    pods = (pod("one", volumes=("waits",)), pod("two", volumes=("waits-too",)))
    assert find_violations(plan_of(one="n", two="n"), plan_inputs(pods)) == [
        "node n: 2 volumes of ebs.csi.aws.com, which attaches 1"
    ]


def test_attached_claim_counts_once() -> None:
    storage = (*STORAGE, pvc("shared", of="gp3"))
    same, other = pod("same", volumes=("shared",)), pod("other", volumes=("waits",))
    assert find_violations(plan_of(same="n"), plan_inputs([same], storage, RUNNING)) == []
    assert find_violations(plan_of(other="n"), plan_inputs([other], storage, RUNNING))


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
def test_pod_with_unusable_volume_must_not_be_planned(storage: list[StorageFact]) -> None:
    found = find_violations(plan_of(p="n"), plan_inputs([pod("p", volumes=("x",))], storage))
    assert any(one.startswith("pod p: ") for one in found)


def test_local_volume_does_not_limit_zone() -> None:
    here = expressions(f"{HOSTNAME} In n9", f"{ZONE} In a")
    for local, expected in ((True, []), (False, ["node n: p does not reach x"])):
        storage: list[StorageFact] = [pvc("x", volume="v"), volume("v", here, local=local)]
        assert find_violations(plan_of(p="n"), plan_inputs([pod("p", volumes=("x",))], storage)) == expected
