"""Instances, launch templates and profiles that nobody owns are deleted, and no other; instances are tagged once."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as some

from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tenure.model.garbage_collection import InventoryInstanceProfile, InventoryLaunchTemplate
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


def add_template(cluster: FakeCluster, name: str, *, pool: str = "pool", age: float = 3600) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_templates[name] = InventoryLaunchTemplate(
        id=name, name=f"karpenter.k8s.aws/{name}", created=made, pool=pool, node_class="default"
    )


def add_profile(cluster: FakeCluster, name: str, *, age: float = 7200) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_profiles[name] = InventoryInstanceProfile(
        name=name, node_class_uid="uid-default", created=made
    )


async def test_templates_that_nobody_launches_with_go(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-running")
    cluster.add_instance("i-1", template="lt-running")
    add_template(cluster, "lt-young", age=600)
    add_template(cluster, "lt-old")
    add_template(cluster, "lt-buying", pool="default")
    cluster.add_nodeclaim("buys")
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert sorted(cluster.orphaned_resources.existing_templates) == ["lt-buying", "lt-running", "lt-young"]
    assert (done.checked, done.collected) == (4, 1)


async def test_a_template_that_may_not_be_deleted_hurts_no_other(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-1")
    add_template(cluster, "lt-2")
    cluster.orphaned_resources.faults["delete_template"] = [Forbidden("not allowed")]
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert (done.collected, done.failed, len(cluster.orphaned_resources.existing_templates)) == (1, 1, 1)


async def test_profiles_that_nobody_has_go(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default")
    add_profile(cluster, "old-role")
    add_profile(cluster, "new-role", age=60)
    add_profile(cluster, "running")
    cluster.add_instance("i-1")
    cluster.instances.running["i-1"] = cluster.instances.running["i-1"].model_copy(
        update={"instance_profile": "running"}
    )
    done = await run_collection(cluster.aws.collect_instance_profiles)
    assert sorted(cluster.orphaned_resources.existing_profiles) == ["new-role", "running"]
    assert (done.checked, done.collected) == (3, 1)


async def test_a_world_without_leftovers_is_not_asked_for_more(cluster: FakeCluster) -> None:
    cluster.instances.faults["list_managed"] = [Forbidden("never asked")]
    assert (await run_collection(cluster.aws.collect_launch_templates)).checked == 0
    assert (await run_collection(cluster.aws.collect_instance_profiles)).checked == 0


DONE = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def annotations(cluster: FakeCluster, name: str) -> dict[str, str]:
    found: dict[str, str] = cluster.claims.found[name]["metadata"]["annotations"]
    return found


async def test_only_what_is_absent_is_written_and_only_once(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.add_nodeclaim("b", cluster.add_instance("i-2", claim="b", Name="a person's"), node="node-b")
    first = await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {
        "i-1": {labels.TAG_NAME: "node-a", labels.TAG_NODECLAIM: "a"}
    }
    assert annotations(cluster, "a") == annotations(cluster, "b") == DONE
    assert (first.checked, first.collected) == (2, 1)
    assert (await run_collection(cluster.aws.tag_instances)).checked == 0


async def test_an_instance_from_before_gets_the_clusters_name(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1", claim="a", Name="node-a"), node="node-a")
    facts = cluster.instances.running["i-1"]
    tags = {key: value for key, value in facts.tags.items() if key != labels.TAG_EKS_CLUSTER_NAME}
    cluster.instances.running["i-1"] = facts.model_copy(update={"tags": tags})
    await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {"i-1": {labels.TAG_EKS_CLUSTER_NAME: CLUSTER}}


async def test_one_that_may_not_be_tagged_hurts_no_other_and_is_told(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    (rejected,) = [name for name in cluster.claims.found if annotations(cluster, name) != DONE]
    assert cluster.events.reasons_for(rejected) == ["TaggingFailed"]


async def test_a_worker_that_may_tag_nothing_soon_stops_trying(cluster: FakeCluster) -> None:
    for number in range(50):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed")] * 50
    assert (await run_collection(cluster.aws.tag_instances)).failed == 5


async def test_a_nodeclaim_that_cannot_be_read_hurts_no_other(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("odd", cluster.add_instance("i-odd"), node="node-odd")
    cluster.claims.found["odd"]["spec"]["requirements"] = "nonsense"
    cluster.add_nodeclaim("well", cluster.add_instance("i-well"), node="node-well")
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    assert annotations(cluster, "well") == DONE


async def test_an_instance_that_is_gone_is_not_marked_as_tagged(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", "aws:///a/i-gone", node="node-a")
    assert (await run_collection(cluster.aws.tag_instances)).collected == 0
    assert annotations(cluster, "a") == {}


async def test_a_mark_that_could_not_be_written_is_written_by_the_next_run(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.claims.faults["patch"] = [TryLater("no API server")]
    assert (await run_collection(cluster.aws.tag_instances)).failed == 1
    await run_collection(cluster.aws.tag_instances)
    assert annotations(cluster, "a") == DONE
