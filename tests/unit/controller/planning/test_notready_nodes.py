"""Plans with NotReady nodes: their grace period, and the events after it."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tenure.apis.labels import NOT_READY_INTERVALS
from tests.support.controller.builders import Json, at, claim, node, stamp
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness

CNI = {"key": "cni.example.com/agent-not-ready", "effect": "NoExecute"}


def add_node(
    harness: ProvisionerHarness,
    *,
    ready_for: float | None = None,
    not_ready_intervals: str = "",
    taints: Sequence[Json] = (),
) -> None:
    """A NodeClaim with an initialized node, NotReady since time 0 unless `ready_for` (seconds) is given."""
    harness.apply_objects(
        "nodeclaims",
        claim(
            "c1",
            phase="Initialized",
            annotations={NOT_READY_INTERVALS: not_ready_intervals} if not_ready_intervals else {},
        ),
    )
    raw = node(
        "n1", of="c1", ready=ready_for is not None, taints=list(taints), labels={"karpenter.sh/nodepool": "general"}
    )
    raw["status"]["allocatable"]["pods"] = "10"
    raw["status"]["conditions"][0]["lastTransitionTime"] = stamp(-(ready_for or 0))
    harness.apply_objects("nodes", raw)


async def test_notready_node_is_used_until_its_grace_period_ends_with_an_event(harness: ProvisionerHarness) -> None:
    add_node(harness)
    harness.add_pods(1)
    harness.now = at(299)
    first = await harness.plan("plan-1")
    assert (first.created, first.nominated) == (0, 1) and harness.events.reasons_for("c1") == []
    harness.now = at(300)
    assert (await harness.plan("plan-2")).created == 1
    messages = harness.events.messages("NotReadyGraceOver")
    assert len(messages) == 1 and "Node n1 has been unavailable since 2026-01-01 12:00:00 UTC (NotReady)" in messages[0]
    assert "the grace period of 300 s" in messages[0]


async def test_grace_event_of_a_flapping_node_sums_its_intervals(harness: ProvisionerHarness) -> None:
    add_node(harness, not_ready_intervals=" ".join(f"{stamp(-n * 100)}/{stamp(-n * 100 + 70)}" for n in (4, 3, 2, 1)))
    harness.add_pods(1)
    harness.now = at(20)
    assert (await harness.plan()).created == 1
    (text,) = harness.events.messages("NotReadyGraceOver")
    assert "300 s of the last 1800 s in 5 intervals" in text


async def test_undeclared_taint_is_reported_when_its_pods_need_a_new_node(harness: ProvisionerHarness) -> None:
    add_node(harness, ready_for=60, taints=[CNI])
    harness.add_pods(1)
    assert (await harness.plan("plan-1")).created == 1
    (text,) = harness.events.messages("UndeclaredTaint")
    assert CNI["key"] in text and "startupTaints" in text
    harness.now = at(1800)
    harness.add_pods(9, "more")
    assert (await harness.plan("plan-2")).created
    assert harness.events.reasons_for("c1").count("UndeclaredTaint") == 1, (
        "only a taint that was added recently is reported"
    )


@pytest.mark.parametrize(("grace", "is_reported"), [(30, True), (120, False)])
async def test_grace_event_depends_on_the_grace_period_of_the_nodepool(
    harness: ProvisionerHarness, grace: int, is_reported: bool
) -> None:
    """The node is NotReady for 40 s."""
    harness.not_ready_grace_periods["general"] = timedelta(seconds=grace)
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    harness.add_pods(8)
    assert (await harness.plan()).created
    messages = harness.events.messages("NotReadyGraceOver")
    assert bool(messages) is is_reported and all("grace period of 30 s" in one for one in messages)
