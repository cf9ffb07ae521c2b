"""The plan validator reports each kind of mistake in a modified plan."""

from collections.abc import Callable

import pytest

from tenure.apis.labels import INSTANCE_TYPE, ZONE
from tenure.model.facts import Expression, PodFact
from tenure.model.plan import Plan, PlannedNodeClaim
from tests.oracle.plan import PlanInputs, find_violations, matches_expression
from tests.unit.scheduling.builders import COMMON, Cluster, daemonset, expressions, node, pod, pool, taint

PODS = (pod("new", cpu=6, selector={ZONE: "a"}), pod("old", cpu=3))
NODE = node("n", cpu=4)
POOL = pool(limits={"cpu": 8000})
TYPES = {one.name: one for one in COMMON}


def good_plan() -> tuple[Plan, PlanInputs]:
    plan = Cluster(POOL, NODE, *PODS).plan()
    return plan, plan_inputs()


def plan_inputs(*pods: PodFact, **more: object) -> PlanInputs:
    return PlanInputs(
        pods={one.uid: one for one in pods or PODS},
        pools={"default": POOL},
        types=TYPES,
        nodes={"n": NODE},
        **more,  # type: ignore[arg-type]
    )


def with_nodeclaim(plan: Plan, **changed: object) -> Plan:
    return plan.model_copy(update={"claims": (plan.claims[0].model_copy(update=changed),)})


def with_types(nodeclaim: PlannedNodeClaim, *names: str) -> tuple[Expression, ...]:
    others = tuple(one for one in nodeclaim.requirements if one.key != INSTANCE_TYPE)
    return (*others, Expression(key=INSTANCE_TYPE, operator="In", values=names))


def test_valid_plan_has_no_violation() -> None:
    plan, inputs = good_plan()
    assert plan.claims and plan.nominations
    assert find_violations(plan, inputs) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan.model_copy(update={"nominations": {}}), "pod old is not answered"),
        (lambda plan: plan.model_copy(update={"nominations": {"old": "n", "new": "n"}}), "pod new is answered 2 times"),
        (lambda plan: plan.model_copy(update={"nominations": {"old": "gone"}}), "node gone: is not there, or goes"),
        (lambda plan: with_nodeclaim(plan, pods=()), "claim 0: is for no pod"),
        (lambda plan: with_nodeclaim(plan, pods=("new", "stranger")), "pod stranger is not one that wants a place"),
        (lambda plan: with_nodeclaim(plan, taints=(taint("t"),)), "claim 0: new does not tolerate its taints"),
        (
            lambda plan: with_nodeclaim(plan, requirements=with_types(plan.claims[0], "m.large")),
            "claim 0: m.large has not enough cpu",
        ),
        (
            lambda plan: with_nodeclaim(plan, requirements=expressions(f"{INSTANCE_TYPE} In m.2xlarge")),
            "may not run on",
        ),
        (
            lambda plan: with_nodeclaim(
                plan, requirements=(*with_types(plan.claims[0], "m.2xlarge"), *expressions(f"{ZONE} In z"))
            ),
            "m.2xlarge cannot be had",
        ),
    ],
)
def test_invalid_plan_is_reported(change: Callable[[Plan], Plan], message: str) -> None:
    plan, inputs = good_plan()
    invalid = change(plan)
    assert any(message in violation for violation in find_violations(invalid, inputs)), find_violations(invalid, inputs)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (plan_inputs(used={"default": {"cpu": 1000}}), "pool default: cpu 9000 passes the limit 8000"),
        (plan_inputs(daemons=[daemonset("d", pod("d", cpu=2, daemonset=True))]), "m.2xlarge has not enough cpu"),
        (plan_inputs(daemons=[daemonset("d", pod("d", cpu=2, daemonset=True))]), "node n: it has not enough cpu"),
        (plan_inputs(bound={"n": [pod("b", cpu=2, node="n")]}), "node n: it has not enough cpu"),
        (plan_inputs(PODS[0], pod("old", cpu=3, selector={ZONE: "b"})), "node n: old may not run on it"),
    ],
)
def test_plan_for_other_inputs_is_reported(inputs: PlanInputs, message: str) -> None:
    plan, _ = good_plan()
    assert message in " | ".join(find_violations(plan, inputs))


@pytest.mark.parametrize(
    ("written", "labels", "expected"),
    [
        ("k In a b", {"k": "a"}, True),
        ("k In a", {}, False),
        ("k NotIn a", {}, True),
        ("k NotIn a", {"k": "a"}, False),
        ("k Exists", {"k": ""}, True),
        ("k DoesNotExist", {"k": ""}, False),
        ("k Gt 3", {"k": "4"}, True),
        ("k Gt 3", {"k": "x"}, False),
        ("k Lt 3", {}, False),
        ("k Gte 3", {"k": "3"}, True),
        ("k Lte 3", {"k": "4"}, False),
    ],
)
def test_expressions_match_labels(written: str, labels: dict[str, str], expected: bool) -> None:
    assert matches_expression(labels, expressions(written)[0]) is expected
