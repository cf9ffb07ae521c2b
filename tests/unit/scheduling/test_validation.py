"""The validator finds each kind of mistake when a good plan is spoilt with it."""

from collections.abc import Callable

import pytest

from tenure.apis.labels import INSTANCE_TYPE, ZONE
from tenure.model.facts import Expression, PodFact
from tenure.model.provisioning import Plan, PlannedClaim
from tenure.scheduling.validation.plan import Given, matches, violations
from tests.unit.scheduling.builders import COMMON, World, daemonset, expressions, node, pod, pool, taint

PODS = (pod("new", cpu=6, selector={ZONE: "a"}), pod("old", cpu=3))
NODE = node("n", cpu=4)
POOL = pool(limits={"cpu": 8000})
TYPES = {one.name: one for one in COMMON}


def good() -> tuple[Plan, Given]:
    plan = World(POOL, NODE, *PODS).plan()
    return plan, given()


def given(*pods: PodFact, **more: object) -> Given:
    return Given(
        pods={one.uid: one for one in pods or PODS},
        pools={"default": POOL},
        types=TYPES,
        nodes={"n": NODE},
        **more,  # type: ignore[arg-type]
    )


def with_claim(plan: Plan, **changed: object) -> Plan:
    return plan.model_copy(update={"claims": (plan.claims[0].model_copy(update=changed),)})


def with_types(claim: PlannedClaim, *names: str) -> tuple[Expression, ...]:
    others = tuple(one for one in claim.requirements if one.key != INSTANCE_TYPE)
    return (*others, Expression(key=INSTANCE_TYPE, operator="In", values=names))


def test_a_good_plan_has_no_violation() -> None:
    plan, world = good()
    assert plan.claims and plan.nominations
    assert violations(plan, world) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda plan: plan.model_copy(update={"nominations": {}}), "pod old is not answered"),
        (lambda plan: plan.model_copy(update={"nominations": {"old": "n", "new": "n"}}), "pod new is answered 2 times"),
        (lambda plan: plan.model_copy(update={"nominations": {"old": "gone"}}), "node gone: is not there, or goes"),
        (lambda plan: with_claim(plan, pods=()), "claim 0: is for no pod"),
        (lambda plan: with_claim(plan, pods=("new", "stranger")), "pod stranger is not one that wants a place"),
        (lambda plan: with_claim(plan, taints=(taint("t"),)), "claim 0: new does not tolerate its taints"),
        (
            lambda plan: with_claim(plan, requirements=with_types(plan.claims[0], "m.large")),
            "claim 0: m.large has not enough cpu",
        ),
        (lambda plan: with_claim(plan, requirements=expressions(f"{INSTANCE_TYPE} In m.2xlarge")), "may not run on"),
        (
            lambda plan: with_claim(
                plan, requirements=(*with_types(plan.claims[0], "m.2xlarge"), *expressions(f"{ZONE} In z"))
            ),
            "m.2xlarge cannot be had",
        ),
    ],
)
def test_a_spoilt_plan_is_found_out(spoil: Callable[[Plan], Plan], said: str) -> None:
    plan, world = good()
    spoilt = spoil(plan)
    assert any(said in wrong for wrong in violations(spoilt, world)), violations(spoilt, world)


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (given(used={"default": {"cpu": 1000}}), "pool default: cpu 9000 passes the limit 8000"),
        (given(daemons=[daemonset("d", pod("d", cpu=2, daemonset=True))]), "m.2xlarge has not enough cpu"),
        (given(daemons=[daemonset("d", pod("d", cpu=2, daemonset=True))]), "node n: it has not enough cpu"),
        (given(bound={"n": [pod("b", cpu=2, node="n")]}), "node n: it has not enough cpu"),
        (given(PODS[0], pod("old", cpu=3, selector={ZONE: "b"})), "node n: old may not run on it"),
    ],
)
def test_a_plan_made_for_another_world_is_found_out(world: Given, said: str) -> None:
    plan, _ = good()
    assert said in " | ".join(violations(plan, world))


@pytest.mark.parametrize(
    ("written", "labels", "holds"),
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
def test_an_expression_on_labels(written: str, labels: dict[str, str], holds: bool) -> None:
    assert matches(labels, expressions(written)[0]) is holds
