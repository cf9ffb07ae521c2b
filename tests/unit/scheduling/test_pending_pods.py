"""Which pods want a node, which are alike, and in which order preferences are given up."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.labels import HOSTNAME, NODE_NAME_FIELD, NODEPOOL
from tenure.model.facts import Expression, PodFact
from tenure.scheduling.pods import (
    excludes_nodepools,
    is_provisionable,
    is_reschedulable,
    provisionable_pods,
    validation_error,
)
from tests.unit.scheduling.builders import NOW, expressions, pod


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (pod(), True),
        (pod(unschedulable=False), False),
        (pod(node="n", unschedulable=True), False),
        (pod(nominated_node="n"), False),
        (pod(daemonset=True), False),
        (pod(mirror=True), False),
        (pod(deleting=True), False),
        (pod(phase="Failed"), False),
    ],
)
def test_pods_that_need_a_node(one: PodFact, counts: bool) -> None:
    assert is_provisionable(one) is counts


UNTRIED = {"unschedulable": False, "untried": True}


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        pytest.param({**UNTRIED}, True, id="not tried yet"),
        pytest.param({**UNTRIED, "untried": False}, False, id="tried, and bound any moment"),
        pytest.param({**UNTRIED, "owner_uid": "another"}, False, id="of another owner"),
        pytest.param({**UNTRIED, "owner_uid": ""}, False, id="of no owner"),
        pytest.param({**UNTRIED, "requests": {"cpu": 1}}, False, id="of another size"),
        pytest.param({**UNTRIED, "volumes": ("data-1",)}, False, id="with a volume of its own"),
        pytest.param({**UNTRIED, "nominated_node": "n"}, False, id="preempting"),
        pytest.param({**UNTRIED, "deleting": True}, False, id="going"),
    ],
)
def test_what_the_scheduler_said_of_one_pod_holds_for_its_like(other: dict[str, Any], counts: bool) -> None:
    unschedulable = pod(owner_uid="set", requests={"cpu": 500})
    like = pod(**{"owner_uid": "set", "requests": {"cpu": 500}, **other})
    assert list(provisionable_pods([like, unschedulable])) == [unschedulable, like][: 1 + counts]
    assert list(provisionable_pods([like])) == []


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (pod(node="n"), True),
        (pod(node="n", daemonset=True), False),
        (pod(node="n", mirror=True), False),
        (pod(node="n", phase="Succeeded"), False),
        (pod(node="n", deleting=True), False),
        (pod(node="n", deleting=True, owner_kind="StatefulSet"), True),
        (pod(node="n", do_not_disrupt="true"), False),
        (pod(node="n", do_not_disrupt="false"), True),
        (pod(node="n", do_not_disrupt="1h", age=60), False),
        (pod(node="n", do_not_disrupt="1m", age=61), True),
    ],
)
def test_pods_that_leave_a_node_and_come_back(one: PodFact, counts: bool) -> None:
    assert is_reschedulable(one, NOW) is counts


def test_a_pod_that_shuns_every_pool_is_left_alone() -> None:
    shunning = expressions(f"{NODEPOOL} DoesNotExist")
    assert excludes_nodepools(pod(terms=(shunning,)))
    assert not excludes_nodepools(pod(terms=(shunning, expressions("team In red"))))
    assert not excludes_nodepools(pod())


ON_N = (Expression(key=NODE_NAME_FIELD, operator="In", values=("n",)),)


@pytest.mark.parametrize(
    ("constraints", "pinned"),
    [
        ({"terms": (ON_N,)}, True),
        ({"terms": (ON_N, expressions(f"{HOSTNAME} In n"))}, True),
        ({"selector": {HOSTNAME: "n"}}, True),
        ({"terms": (ON_N, expressions("team In red"))}, False),
        ({"terms": (expressions(f"{HOSTNAME} In n m"),)}, False),
        ({"terms": (expressions(f"{HOSTNAME} NotIn m"),)}, False),
        ({"selector": {"team": "red"}}, False),
        ({}, False),
    ],
)
def test_pod_pinned_to_its_node_is_not_rescheduled(constraints: dict[str, Any], pinned: bool) -> None:
    assert is_reschedulable(pod(node="n", **constraints), NOW) is not pinned


def test_invalid_preference_is_no_validation_error() -> None:
    assert validation_error(pod(preferred={"team Near red": 1})) == ""


def test_a_pod_that_cannot_be_planned_says_why() -> None:
    assert "team" in validation_error(pod(terms=(expressions("team Near red"),)))
    assert "no expressions" in validation_error(pod(terms=((),)))
    assert validation_error(pod(terms=((), expressions("team In red")))) == ""


def test_do_not_disrupt_lasts_from_the_pods_creation() -> None:
    one = pod(node="n", do_not_disrupt="10m", age=0)
    assert not is_reschedulable(one, NOW + timedelta(minutes=9))
    assert is_reschedulable(one, NOW + timedelta(minutes=10))
