"""What a workflow is told of its node's health: what repair counts, while the gate is on, and nothing of the well."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.signals.digests import Digest, NodeClaimView, nodeclaim_digest, nodepool_digest
from tenure.kube.facts.objects import nodepool_fact
from tenure.model.facts import NodeCondition, NodeFact
from tenure.model.node_health import UnhealthyCondition
from tests.support.controller import builders
from tests.support.controller.builders import at, claim_fact, node_fact

RUNNING = {"registered": True, "launched": True, "initialized": True, "initialized_at": at(-50)}
STARTING = {"registered": True, "launched": True}
READY = NodeCondition(type="Ready", status="True", since=at(-60))
KERNEL = NodeCondition(type="KernelReady", status="False", since=at(-30))
UNREADY = NodeCondition(type="Ready", status="False", since=at(-30))


def digest(claim: dict[str, Any], node: NodeFact, *, at_: float = 0, **view: Any) -> Digest:
    view_fields: dict[str, Any] = {"is_repair_enabled": True, **view}
    return nodeclaim_digest(NodeClaimView(claim=claim_fact(**claim), nodes=(node,), **view_fields), at(at_))


def rules(**repair: Any) -> LifecycleRules:
    return LifecycleRules.model_validate({"repair": repair})


def test_a_running_node_tells_of_a_condition_that_counts_with_the_time_it_began() -> None:
    unhealthy = digest(RUNNING, node_fact(conditions=(READY, KERNEL))).observed.unhealthy
    assert unhealthy == (UnhealthyCondition(type="KernelReady", status="False", since=at(-30)),)


@pytest.mark.parametrize(
    "conditions",
    [
        (READY,),
        (READY, NodeCondition(type="KernelReady", status="True", since=at(-3))),
        (READY, NodeCondition(type="DiskPressure", status="True", since=at(-3))),
        (READY, NodeCondition(type="KernelReady", status="False")),
    ],
    ids=["ready", "kernel ready", "a pressure", "no time"],
)
def test_what_does_not_count_makes_no_difference(conditions: tuple[NodeCondition, ...]) -> None:
    actual = digest(RUNNING, node_fact(conditions=conditions))
    assert actual == digest(RUNNING, node_fact()) and actual.observed.unhealthy == ()


def test_without_the_gate_nothing_is_told() -> None:
    node = node_fact(ready=False, conditions=(UNREADY, KERNEL))
    assert digest(RUNNING, node, is_repair_enabled=False).observed.unhealthy == ()


def test_rules_say_which_conditions_count() -> None:
    worn = NodeCondition(type="DiskWorn", status="True", since=at(-5))
    node = node_fact(conditions=(READY, KERNEL, worn))
    mine = rules(conditions=[{"type": "DiskWorn", "status": "True", "toleration": "1m"}])
    assert [one.type for one in digest(RUNNING, node, rules=mine).observed.unhealthy] == ["DiskWorn"]
    assert digest(RUNNING, node, rules=rules(conditions=[])).observed.unhealthy == ()


def test_a_node_that_starts_costs_no_signal_for_not_being_ready_yet() -> None:
    node = node_fact(ready=False, conditions=(UNREADY,))
    first = digest(STARTING, node)
    assert first.observed == digest(STARTING, node, is_repair_enabled=False).observed and first.recheck_at == at(30)
    later = digest(STARTING, node, at_=30)
    assert [one.since for one in later.observed.unhealthy] == [at(-30)]


def test_of_a_node_that_starts_it_is_told_before_a_short_toleration_ends() -> None:
    node = node_fact(ready=False, conditions=(UNREADY,))
    short = rules(conditions=[{"type": "Ready", "status": "False", "toleration": "50s"}])
    assert digest(STARTING, node, at_=-10, rules=short).recheck_at == at(-5)
    assert digest(STARTING, node, at_=-5, rules=short).observed.unhealthy


def test_a_node_that_goes_tells_nothing_of_its_health() -> None:
    actual = digest({**RUNNING, "deleting": True}, node_fact(conditions=(UNREADY,)))
    assert actual.observed.deleting and actual.observed.unhealthy == ()


def test_a_pool_is_told_of_registrations_only_while_its_condition_is_to_be_mended() -> None:
    pool = nodepool_fact(builders.pool("general"))
    some = [claim_fact(registered=True), claim_fact(name="c2", registered=False)]
    assert nodepool_digest(pool, some, None, healthy_at=None).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation, 3)).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation + 1, 0)).registered == 1
    assert nodepool_digest(pool, some, None, healthy_at=(pool.generation, 0)).registered == 0
