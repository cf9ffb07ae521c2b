"""Provisionable and reschedulable pods, and pods that cannot be planned."""

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
def test_provisionable_pods(one: PodFact, counts: bool) -> None:
    assert is_provisionable(one) is counts


UNTRIED = {"unschedulable": False, "untried": True}


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        pytest.param({**UNTRIED}, True, id="not tried yet"),
        pytest.param({**UNTRIED, "untried": False}, False, id="already tried"),
        pytest.param({**UNTRIED, "owner_uid": "another"}, False, id="other owner"),
        pytest.param({**UNTRIED, "owner_uid": ""}, False, id="no owner"),
        pytest.param({**UNTRIED, "requests": {"cpu": 1}}, False, id="other size"),
        pytest.param({**UNTRIED, "volumes": ("data-1",)}, False, id="own volume"),
        pytest.param({**UNTRIED, "nominated_node": "n"}, False, id="preempting"),
        pytest.param({**UNTRIED, "deleting": True}, False, id="deleting"),
    ],
)
def test_untried_pod_similar_to_an_unschedulable_one_is_provisionable(other: dict[str, Any], counts: bool) -> None:
    unschedulable = pod(owner_uid="set", requests={"cpu": 500})
    similar = pod(**{"owner_uid": "set", "requests": {"cpu": 500}, **other})
    assert list(provisionable_pods([similar, unschedulable])) == [unschedulable, similar][: 1 + counts]
    assert list(provisionable_pods([similar])) == []


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
def test_reschedulable_pods(one: PodFact, counts: bool) -> None:
    assert is_reschedulable(one, NOW) is counts


def test_pod_that_excludes_every_nodepool_is_recognized() -> None:
    excluding = expressions(f"{NODEPOOL} DoesNotExist")
    assert excludes_nodepools(pod(terms=(excluding,)))
    assert not excludes_nodepools(pod(terms=(excluding, expressions("team In red"))))
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


def test_pod_that_cannot_be_planned_has_an_error() -> None:
    assert "team" in validation_error(pod(terms=(expressions("team Near red"),)))
    assert "no expressions" in validation_error(pod(terms=((),)))
    assert validation_error(pod(terms=((), expressions("team In red")))) == ""


def test_do_not_disrupt_counts_from_the_creation_of_the_pod() -> None:
    one = pod(node="n", do_not_disrupt="10m", age=0)
    assert not is_reschedulable(one, NOW + timedelta(minutes=9))
    assert is_reschedulable(one, NOW + timedelta(minutes=10))
