"""Orphaned instances, launch templates and profiles are deleted, owned ones are kept, and instances get tags once."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from activities.garbage_collection.aws import CONCURRENT_TAGGINGS
from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tenure.model.garbage_collection import InventoryInstanceProfile, InventoryLaunchTemplate
from tenure.model.provider_results import InstanceFacts
from tests.support.properties import max_examples
from tests.unit.activities.builders import CLUSTER, FakeCluster, run_collection


async def test_orphaned_instance_is_terminated_with_its_node(cluster: FakeCluster) -> None:
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


async def test_instance_of_open_launch_group_is_kept(cluster: FakeCluster) -> None:
    cluster.add_instance("i-open", group="open")
    cluster.add_instance("i-forgotten", group="forgotten")
    cluster.add_instance("i-alone")
    cluster.workflows.open_groups = {"open"}
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert sorted(cluster.instances.terminated) == ["i-alone", "i-forgotten"]
    assert cluster.workflows.requested_groups == [{"open", "forgotten"}]


async def test_instances_of_groups_are_kept_while_open_groups_are_unknown(cluster: FakeCluster) -> None:
    cluster.add_instance("i-group", group="group")
    cluster.add_instance("i-alone")
    cluster.workflows.faults["find_open_groups"] = [TryLater("the workflow does not answer")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-alone"]
    assert done.failed == 1 and "does not answer" in done.notes[0]


async def test_open_groups_are_not_read_without_orphaned_instances(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("owner", cluster.add_instance("i-1", group="g"))
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.workflows.requested_groups == []


async def test_failed_termination_does_not_affect_other_instances(cluster: FakeCluster) -> None:
    for name in ("i-1", "i-2", "i-3"):
        cluster.add_instance(name)
    cluster.instances.faults["terminate"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert len(cluster.instances.terminated) == 2
    assert (done.collected, done.failed) == (2, 1)
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert sorted(cluster.instances.terminated) == ["i-1", "i-2", "i-3"]


async def test_unreadable_nodeclaim_and_nodeclass_do_not_block_collection(cluster: FakeCluster) -> None:
    """In Karpenter, one broken EC2NodeClass fails the whole list of instances."""
    cluster.add_instance("i-orphan")
    cluster.add_nodeclaim("odd", cluster.add_instance("i-odd"))
    cluster.claims.found["odd"]["spec"] = {"requirements": "nonsense", "expireAfter": -1}
    cluster.node_classes.faults["list"] = [TryLater("broken")]
    done = await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-orphan"]
    assert done.failed == 0


async def test_instance_whose_tags_were_removed_is_kept(cluster: FakeCluster) -> None:
    """A person keeps the instance to examine it."""
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
    """An instance, and the state of its NodeClaim during garbage collection."""

    age: float
    cluster: str
    group: str
    open: bool
    claim: str
    """`there`, `comes` between the two lists, `waits` for its instance, or `none`."""


INSTANCE_CASES = some.builds(
    InstanceCase,
    age=some.sampled_from([0.0, 15.0, 28.0, 45.0, 600.0, 1e6]),
    cluster=some.sampled_from([CLUSTER, CLUSTER, CLUSTER, "other"]),
    group=some.sampled_from(["", "g1", "g2"]),
    open=some.booleans(),
    claim=some.sampled_from(["there", "comes", "waits", "none", "none"]),
)


@max_examples(150)
@given(some.lists(INSTANCE_CASES, max_size=8), some.integers(0, 3))
def test_only_old_orphaned_instances_are_terminated(cases: list[InstanceCase], faults: int) -> None:
    asyncio.run(_run_case(cases, faults))


async def _run_case(cases: list[InstanceCase], faults: int) -> None:
    began = time.monotonic()
    cluster = FakeCluster()
    cluster.workflows.open_groups = {one.group for one in cases if one.open and one.group}
    cluster.instances.faults["terminate"] = [TryLater("busy")] * faults
    coming: list[tuple[str, str]] = []
    for number, one in enumerate(cases):
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
    waited_for = {one.group for one in cases if one.claim == "waits" and one.group}
    for number, one in enumerate(cases):
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
    created = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_templates[name] = InventoryLaunchTemplate(
        id=name, name=f"karpenter.k8s.aws/{name}", created=created, pool=pool, node_class="default"
    )


def add_profile(cluster: FakeCluster, name: str, *, age: float = 7200) -> None:
    created = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_profiles[name] = InventoryInstanceProfile(
        name=name, node_class_uid="uid-default", created=created
    )


async def test_unused_launch_templates_are_deleted(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-running")
    cluster.add_instance("i-1", template="lt-running")
    add_template(cluster, "lt-young", age=600)
    add_template(cluster, "lt-old")
    add_template(cluster, "lt-buying", pool="default")
    cluster.add_nodeclaim("buys")
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert sorted(cluster.orphaned_resources.existing_templates) == ["lt-buying", "lt-running", "lt-young"]
    assert (done.checked, done.collected) == (4, 1)


async def test_failed_template_deletion_does_not_affect_other_templates(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-1")
    add_template(cluster, "lt-2")
    cluster.orphaned_resources.faults["delete_template"] = [Forbidden("not allowed")]
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert (done.collected, done.failed, len(cluster.orphaned_resources.existing_templates)) == (1, 1, 1)


async def test_unused_instance_profiles_are_deleted(cluster: FakeCluster) -> None:
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


async def test_instances_are_not_listed_without_orphan_candidates(cluster: FakeCluster) -> None:
    cluster.instances.faults["list_managed"] = [Forbidden("never asked")]
    assert (await run_collection(cluster.aws.collect_launch_templates)).checked == 0
    assert (await run_collection(cluster.aws.collect_instance_profiles)).checked == 0


DONE = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def annotations(cluster: FakeCluster, name: str) -> dict[str, str]:
    found: dict[str, str] = cluster.claims.found[name]["metadata"]["annotations"]
    return found


async def test_only_missing_tags_are_written_once(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.add_nodeclaim("b", cluster.add_instance("i-2", claim="b", Name="a person's"), node="node-b")
    first = await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {
        "i-1": {labels.TAG_NAME: "node-a", labels.TAG_NODECLAIM: "a"}
    }
    assert annotations(cluster, "a") == annotations(cluster, "b") == DONE
    assert (first.checked, first.collected) == (2, 1)
    assert (await run_collection(cluster.aws.tag_instances)).checked == 0


async def test_older_instance_gets_cluster_name_tag(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1", claim="a", Name="node-a"), node="node-a")
    facts = cluster.instances.running["i-1"]
    tags = {key: value for key, value in facts.tags.items() if key != labels.TAG_EKS_CLUSTER_NAME}
    cluster.instances.running["i-1"] = facts.model_copy(update={"tags": tags})
    await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {"i-1": {labels.TAG_EKS_CLUSTER_NAME: CLUSTER}}


async def test_failed_tagging_is_reported_and_does_not_affect_other_instances(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    (rejected,) = [name for name in cluster.claims.found if annotations(cluster, name) != DONE]
    assert cluster.events.reasons_for(rejected) == ["TaggingFailed"]


async def test_repeated_tagging_failures_stop_the_run(cluster: FakeCluster) -> None:
    for number in range(50):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed")] * 50
    assert (await run_collection(cluster.aws.tag_instances)).failed == 5


async def test_few_instances_are_tagged_at_the_same_time(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    running = most = 0

    async def tag_instance(instance_id: str, tags: Mapping[str, str]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    monkeypatch.setattr(cluster.orphaned_resources, "tag_instance", tag_instance)
    assert (await run_collection(cluster.aws.tag_instances)).collected == 50
    assert most == CONCURRENT_TAGGINGS


async def test_unreadable_nodeclaim_does_not_block_tagging(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("odd", cluster.add_instance("i-odd"), node="node-odd")
    cluster.claims.found["odd"]["spec"]["requirements"] = "nonsense"
    cluster.add_nodeclaim("well", cluster.add_instance("i-well"), node="node-well")
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    assert annotations(cluster, "well") == DONE


async def test_missing_instance_is_not_marked_as_tagged(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", "aws:///a/i-gone", node="node-a")
    assert (await run_collection(cluster.aws.tag_instances)).collected == 0
    assert annotations(cluster, "a") == {}


async def test_failed_tagged_annotation_is_written_by_next_run(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.claims.faults["patch"] = [TryLater("no API server")]
    assert (await run_collection(cluster.aws.tag_instances)).failed == 1
    await run_collection(cluster.aws.tag_instances)
    assert annotations(cluster, "a") == DONE
