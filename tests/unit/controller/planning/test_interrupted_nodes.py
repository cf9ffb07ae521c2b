"""Plans that replace interrupted nodes: spread over capacity pools, and within limits."""

from datetime import timedelta

import pytest

from tenure.apis import labels
from tenure.model.interruption.messages import InterruptionMessage
from tests.support.controller.builders import claim, node, node_class, pool
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness
from tests.unit.scheduling.builders import instance_type


async def test_interrupted_spot_nodes_are_replaced_in_one_sharded_plan(harness: ProvisionerHarness) -> None:
    spot = labels_of("m.large", "a", "spot")
    names = [f"c{number}" for number in range(20)]
    offer_spot(harness)
    harness.apply_objects("nodeclaims", *(claim(name, phase="Initialized", labels=spot) for name in names))
    harness.apply_objects("nodes", *(node(f"n-{name}", of=name) for name in names))
    for name in names:
        harness.add_pods(1, name, on=f"n-{name}")
    assert (await harness.plan("before")).created == 0
    for name in names:
        message = InterruptionMessage(kind="spotInterruption", id="terminate", at=harness.now)
        harness.interrupted_capacity.observe(harness.cache.nodeclaims[name], [message])
    outcome = await harness.plan("burst")
    assert outcome.created > 0 and outcome.unschedulable == 0
    offering_shards = [draft.offering_shard for draft in outcome.drafts]
    assert len(set(offering_shards)) == len(offering_shards) == min(3, outcome.created) and None not in offering_shards
    assert {one.offering_shard for one in (await harness.plan("burst")).drafts} == set(offering_shards), (
        "a repeat of the same plan keeps the shards"
    )
    expected = {harness.nominations.nomination_of(f"uid-{name}0") for name in names}
    assert None not in expected and not {one.target for one in expected if one} & set(names)
    planning_inputs = await harness.provisioner.planner_client.read_planning_inputs(harness.now)
    assert [(one.instance_type, one.zone, one.capacity_type) for one in planning_inputs.unavailable] == [
        ("m.large", "a", "spot")
    ]
    assert (await harness.plan("after")).created == 0


@pytest.mark.parametrize(("remaining", "spread"), [(60, True), (-1, False)])
async def test_interruption_burst_of_an_earlier_worker_lasts_until_its_end(
    harness: ProvisionerHarness, remaining: float, spread: bool
) -> None:
    offer_spot(harness)
    harness.add_pods(40)
    outcome = await harness.plan(burst_ends_at=harness.now + timedelta(seconds=remaining))
    assert (None not in {draft.offering_shard for draft in outcome.drafts}) == spread


async def test_equal_nodeclaims_launch_together_without_a_burst(harness: ProvisionerHarness) -> None:
    offer_spot(harness)
    harness.add_pods(40)
    (draft,) = (await harness.plan()).drafts
    assert len(draft.members) > 1 and draft.offering_shard is None


async def test_interrupted_node_does_not_consume_the_limit(harness: ProvisionerHarness) -> None:
    """Otherwise its replacement could be created only once its NodeClaim is being deleted."""
    harness.delete_objects("nodepools", pool())
    harness.apply_objects("nodepools", pool(limits={"nodes": "1"}))
    old = claim("old", phase="Initialized", labels=labels_of("m.large", "a", "spot"))
    harness.claims.found["old"] = old
    harness.apply_objects("nodeclaims", old)
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.add_pods(1, "p", on="n-old")
    harness.cache.set_interrupted("old", interrupted=True)
    outcome = await harness.plan("burst")
    assert (outcome.created, outcome.unschedulable) == (1, 0)


def offer_spot(harness: ProvisionerHarness) -> None:
    capacity_types = ("on-demand", "spot")
    harness.types.kinds = [
        instance_type("m.large", cpu=2, memory=8, capacity_types=capacity_types),
        instance_type("m.2xlarge", capacity_types=capacity_types),
    ]
    subnets = [{"id": f"subnet-{zone}", "zone": zone} for zone in "abc"]
    harness.apply_objects("ec2nodeclasses", {**node_class(), "status": {"subnets": subnets}})


def labels_of(instance_type: str, zone: str, capacity_type: str) -> dict[str, str]:
    return {
        labels.NODEPOOL: "general",
        labels.INSTANCE_TYPE: instance_type,
        labels.ZONE: zone,
        labels.CAPACITY_TYPE: capacity_type,
    }
