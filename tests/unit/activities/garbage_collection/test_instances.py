"""Instances that nobody owns are ended, and no other: not in any order in which things happen."""

import asyncio
import time
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as some

from tenure.model.errors import Forbidden, TryLater
from tenure.model.provider_results import InstanceFacts
from tests.support.properties import max_examples
from tests.unit.activities.builders import CLUSTER, FakeCluster, run_collection


async def test_an_instance_without_a_nodeclaim_goes_with_its_node_and_it_is_said(cluster: FakeCluster) -> None:
    cluster.nodes.join("orphaned", cluster.add_instance("i-orphan"))
    owned = cluster.add_instance("i-owned")
    cluster.add_nodeclaim("owner", owned)
    cluster.nodes.join("kept", owned)
    cluster.add_instance("i-young", age=5)
    cluster.add_instance("i-foreign", cluster="other")
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-orphan"]
    assert list(cluster.nodes.found) == ["kept"]
    assert (done.checked, done.collected, done.failed) == (4, 2, 0)
    assert cluster.events.reasons_for("pool") == ["GarbageCollected"]


async def test_an_instance_whose_group_still_hands_out_is_spared_and_a_forgotten_groups_is_not(
    cluster: FakeCluster,
) -> None:
    cluster.add_instance("i-open", group="open")
    cluster.add_instance("i-forgotten", group="forgotten")
    cluster.add_instance("i-alone")
    cluster.workflows.open_groups = {"open"}
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert sorted(cluster.instances.terminated) == ["i-alone", "i-forgotten"]
    assert cluster.workflows.requested_groups == [{"open", "forgotten"}]


async def test_while_nobody_can_tell_which_groups_are_open_none_of_their_instances_goes(cluster: FakeCluster) -> None:
    cluster.add_instance("i-group", group="group")
    cluster.add_instance("i-alone")
    cluster.workflows.faults["find_open_groups"] = [TryLater("the workflow does not answer")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-alone"]
    assert done.failed == 1 and "does not answer" in done.notes[0]


async def test_nobody_is_asked_about_groups_while_every_instance_is_owned(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("owner", cluster.add_instance("i-1", group="g"))
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.workflows.requested_groups == []


async def test_an_instance_that_may_not_be_ended_hurts_no_other(cluster: FakeCluster) -> None:
    for name in ("i-1", "i-2", "i-3"):
        cluster.add_instance(name)
    cluster.instances.faults["terminate"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert len(cluster.instances.terminated) == 2
    assert (done.collected, done.failed) == (2, 1)
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert sorted(cluster.instances.terminated) == ["i-1", "i-2", "i-3"]


async def test_a_nodeclaim_and_a_class_that_cannot_be_read_stop_nothing(cluster: FakeCluster) -> None:
    """Karpenter's list of instances fails as a whole for one broken class."""
    cluster.add_instance("i-orphan")
    cluster.add_nodeclaim("odd", cluster.add_instance("i-odd"))
    cluster.claims.found["odd"]["spec"] = {"requirements": "nonsense", "expireAfter": -1}
    cluster.node_classes.faults["list"] = [TryLater("broken")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-orphan"]
    assert done.failed == 0


async def test_an_instance_whose_tags_were_taken_off_meanwhile_stays(cluster: FakeCluster) -> None:
    """A person keeps it for a look."""
    cluster.add_instance("i-kept")
    get = cluster.instances.get

    async def without_tags(instance_id: str) -> InstanceFacts | None:
        found = await get(instance_id)
        return found.model_copy(update={"tags": {}}) if found else None

    cluster.instances.get = without_tags  # type: ignore[method-assign]
    assert (await run_collection(cluster.aws.terminate_orphaned_instances)).collected == 0
    assert cluster.instances.terminated == []


@dataclass(frozen=True)
class InstanceCase:
    """An instance, and what becomes of its NodeClaim while upkeep looks around."""

    age: float
    cluster: str
    group: str
    open: bool
    claim: str
    """`there`, `comes` between the two lists, `waits` for its instance, or `none`."""


MADE = some.builds(
    InstanceCase,
    age=some.sampled_from([0.0, 15.0, 28.0, 45.0, 600.0, 1e6]),
    cluster=some.sampled_from([CLUSTER, CLUSTER, CLUSTER, "other"]),
    group=some.sampled_from(["", "g1", "g2"]),
    open=some.booleans(),
    claim=some.sampled_from(["there", "comes", "waits", "none", "none"]),
)


@max_examples(150)
@given(some.lists(MADE, max_size=8), some.integers(0, 3))
def test_nothing_goes_that_is_young_foreign_claimed_or_being_handed_out(made: list[InstanceCase], faults: int) -> None:
    asyncio.run(_run_case(made, faults))


async def _run_case(made: list[InstanceCase], faults: int) -> None:
    began = time.monotonic()
    cluster = FakeCluster()
    cluster.workflows.open_groups = {one.group for one in made if one.open and one.group}
    cluster.instances.faults["terminate"] = [TryLater("busy")] * faults
    coming: list[tuple[str, str]] = []
    for number, one in enumerate(made):
        name = f"c{number}"
        tags = {"group": one.group} if one.group else {"claim": name}
        provider = cluster.add_instance(f"i-{number}", age=one.age, cluster=one.cluster, **tags)
        if one.claim == "there":
            cluster.add_nodeclaim(name, provider)
        elif one.claim == "comes":
            coming.append((name, provider))
        elif one.claim == "waits":
            cluster.claims.add(name, annotations={"tenure.sh/launch-group": one.group} if one.group else {})
    _add_claims_between_lists(cluster, coming)
    await run_collection(cluster.aws.terminate_orphaned_instances)
    took = time.monotonic() - began
    waited_for = {one.group for one in made if one.claim == "waits" and one.group}
    for number, one in enumerate(made):
        terminated = f"i-{number}" in cluster.instances.terminated
        spared = one.group in cluster.workflows.open_groups or one.group in waited_for
        unowned = one.cluster == CLUSTER and one.claim == "none" and not spared
        assert terminated <= (one.age + took > 30 and unowned), (number, one)
        assert (one.age > 30 and unowned) <= terminated or faults, (number, one)


def _add_claims_between_lists(cluster: FakeCluster, coming: list[tuple[str, str]]) -> None:
    lists = cluster.instances.list_managed

    async def list_then_add_claims() -> object:
        listed = await lists()
        for name, provider in coming:
            cluster.add_nodeclaim(name, provider)
        return listed

    cluster.instances.list_managed = list_then_add_claims  # type: ignore[assignment, method-assign]
