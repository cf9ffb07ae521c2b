"""When nodes expire: never after expireAfter, before it by no more than the jitter, and not all at once."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.lifecycle.ready import expiry_of, has_expired, is_under_budget
from tests.unit.policy.builders import NOW, after, before, node

LIFETIME = timedelta(hours=100)
BORN = before(hours=1)
LATEST = BORN + LIFETIME


def aging(uid: str = "uid-a", *, expiry: dict[str, Any] | None = None, **state: Any) -> NodeClaimState:
    rules = LifecycleRules.model_validate({"expiry": expiry}) if expiry is not None else None
    made = node({"rules": rules}, born=BORN, **{"expires": LATEST, "lifetime": LIFETIME, **state})
    return made.model_copy(update={"identity": made.identity.model_copy(update={"uid": uid})})


def expiries(**kwargs: Any) -> list[datetime]:
    found = [expiry_of(aging(f"uid-{number}", **kwargs)) for number in range(1000)]
    return [one for one in found if one is not None]


@pytest.mark.parametrize(
    ("expiry", "hours"), [(None, 5), ({}, 5), ({"jitter": "10%"}, 10), ({"jitter": "1%"}, 1), ({"jitter": "100%"}, 100)]
)
def test_nodes_born_together_expire_over_the_whole_of_the_jitter_and_none_too_late(
    expiry: dict[str, Any] | None, hours: float
) -> None:
    found = expiries(expiry=expiry)
    assert LATEST - timedelta(hours=hours) < min(found) and max(found) <= LATEST
    for tenth in range(10):
        begin = LATEST - timedelta(hours=hours * (tenth + 1) / 10)
        assert 60 <= sum(begin <= one < begin + timedelta(hours=hours / 10) for one in found) <= 140


def test_without_jitter_a_node_expires_at_karpenters_moment() -> None:
    assert set(expiries(expiry={"jitter": "0%"})) == {LATEST}


def test_the_moment_is_the_same_whenever_it_is_asked_for() -> None:
    assert expiries() == expiries()


def test_a_life_that_began_without_jitter_keeps_its_moment() -> None:
    assert expiry_of(aging(lifetime=None)) == LATEST


def test_a_node_that_never_expires() -> None:
    state = aging(expires=None, lifetime=None)
    assert expiry_of(state) is None and not has_expired(state, after(hours=10**5))


def test_it_has_expired_from_its_moment_on() -> None:
    state = aging(expiry={"jitter": "0%"})
    assert not has_expired(state, LATEST - timedelta(seconds=1)) and has_expired(state, LATEST)
    assert not has_expired(state, NOW)


def test_only_rules_make_expiry_ask_and_a_node_without_a_pool_has_nobody_to_ask() -> None:
    assert is_under_budget(aging(expiry={"underBudget": True}))
    assert not any(is_under_budget(aging(expiry=one)) for one in (None, {}, {"underBudget": False}))
    under_budget = aging(expiry={"underBudget": True})
    assert not is_under_budget(
        under_budget.model_copy(update={"identity": under_budget.identity.model_copy(update={"pool": ""})})
    )
