"""LifecyclePolicies where the watch is hosted: from the API server's objects to rules, claims and verdicts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.cache.dirty import Dirty
from tenure.controller.lifecycle_policies import Policies
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tenure.model.nodeclaim_state import Deadlines
from tenure.model.operator_requests import ALL_READ, PolicyVerdict
from tests.support.controller.builders import World, claim, pool, stamp


class Told:
    """The port: what was said, and how often it is to fail."""

    def __init__(self) -> None:
        self.said: list[tuple[str, PolicyVerdict]] = []
        self.failures = 0

    async def say(self, name: str, uid: str, verdict: PolicyVerdict, *, now: datetime) -> bool:
        if self.failures:
            self.failures -= 1
            raise TryLater("told to fail")
        self.said.append((name, verdict))
        return True


def policy(name: str, *, generation: int = 1, age: float = 100, **spec: Any) -> dict[str, Any]:
    """`age` in seconds."""
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation, "creationTimestamp": stamp(-age)}
    return {"metadata": metadata, "spec": spec}


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.told, self.woken = Told(), 0
        self.policies = Policies(self.caches, self.told, usual=Deadlines(), now=lambda: self.now, woken=self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def write(self, *policies: dict[str, Any]) -> None:
        self.policies.hear([Delta(one) for one in policies])

    def remove(self, name: str) -> None:
        self.policies.hear([Delta(policy(name), gone=True)])

    def look(self) -> Dirty:
        """What is due after it."""
        dirty = self.caches.take_dirty()
        self.policies.look(dirty)
        return dirty


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.hear("nodepools", pool("general"), pool("gpu"))
    stage.hear("nodeclaims", claim("c1"), claim("g1", pool="gpu"))
    stage.look()
    return stage


GPU: dict[str, Any] = {"nodePoolSelector": {"names": ["gpu"]}}


def test_a_policy_makes_the_claims_of_its_pools_due_and_no_others(stage: Stage) -> None:
    stage.write(policy("p", **GPU, launch={"deadline": "4m"}))
    assert stage.woken == 1
    due = stage.look()
    assert (due.claims, due.pools) == ({"g1"}, {"gpu"})
    assert stage.policies.deadlines_of("gpu").launch == timedelta(minutes=4)
    assert stage.policies.rules_of("general") is None
    stage.remove("p")
    assert stage.look().claims == {"g1"}
    assert stage.policies.rules_of("gpu") is None


def test_what_changes_nothing_for_a_pool_makes_no_claim_due(stage: Stage) -> None:
    stage.write(policy("p", **GPU, launch={"deadline": "4m"}))
    stage.look()
    stage.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert stage.look().claims == set()
    stage.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert stage.woken == 2, "its own status"


def test_a_pool_that_gets_a_label_is_selected_by_it(stage: Stage) -> None:
    stage.write(policy("p", nodePoolSelector={"matchLabels": {"team": "a"}}, notReadyGrace="9m"))
    assert stage.look().claims == set() and stage.policies.graces() == {}
    labelled = pool("gpu")
    labelled["metadata"]["labels"] = {"team": "a"}
    stage.hear("nodepools", labelled)
    assert "g1" in stage.look().claims
    assert stage.policies.graces() == {"gpu": timedelta(minutes=9)}


def test_nodes_of_a_pool_that_is_gone_are_drained_by_its_rules(stage: Stage) -> None:
    labelled = pool("gpu")
    labelled["metadata"]["labels"] = {"team": "a"}
    stage.hear("nodepools", labelled)
    stage.write(policy("p", nodePoolSelector={"matchLabels": {"team": "a"}}, drain={"deadline": "2h"}))
    stage.look()
    stage.lose("nodepools", labelled)
    assert stage.look().claims == set()
    assert stage.policies.rules_of("gpu") is not None
    stage.lose("nodeclaims", claim("g1", pool="gpu"))
    stage.look()
    assert stage.policies.rules_of("gpu") is None


def test_one_that_cannot_be_read_hurts_only_itself(stage: Stage) -> None:
    stage.write(policy("p", **GPU, launch={"whenOverdue": "explode"}), policy("q", notReadyGrace="1m"))
    stage.look()
    assert set(stage.policies.graces()) == {"general", "gpu"}


async def test_each_verdict_is_written_once_and_again_when_it_turns(stage: Stage) -> None:
    stage.write(policy("old", age=200, notReadyGrace="1m"), policy("young", notReadyGrace="2m"))
    stage.look()
    assert await stage.policies.say() and await stage.policies.say()
    assert sorted((name, one.reason) for name, one in stage.told.said) == [("old", "Conflict"), ("young", "Conflict")]
    stage.told.said.clear()
    stage.remove("young")
    stage.look()
    await stage.policies.say()
    assert [(name, one.reason, one.node_pools) for name, one in stage.told.said] == [("old", "", ("general", "gpu"))]


async def test_a_verdict_that_could_not_be_written_is_written_next_time(stage: Stage) -> None:
    stage.write(policy("p", launch={"deadline": "0s"}))
    stage.look()
    stage.told.failures = 1
    assert not await stage.policies.say()
    assert await stage.policies.say()
    assert [(name, one.refused, one.reason) for name, one in stage.told.said] == [("p", True, "RuntimeValidation")]


async def test_nothing_is_said_before_all_policies_and_pools_are_known(stage: Stage) -> None:
    stage.write(policy("p", **GPU, launch={"deadline": "4m"}))
    assert not stage.policies.look(stage.caches.take_dirty(), known=False)
    await stage.policies.say()
    assert stage.told.said == [] and stage.policies.rules_of("gpu") is None
    assert stage.look().claims == {"g1"}
    await stage.policies.say()
    assert len(stage.told.said) == 1


Change = Callable[[Stage], None]


@pytest.mark.parametrize(
    "change",
    [lambda stage: stage.hear("nodepools", pool("later")), lambda stage: stage.lose("nodepools", pool("general"))],
)
async def test_a_pool_that_comes_or_goes_is_told_on_the_policy(stage: Stage, change: Change) -> None:
    stage.lose("nodeclaims", claim("c1"))
    stage.write(policy("p", notReadyGrace="1m"))
    stage.look()
    await stage.policies.say()
    change(stage)
    stage.look()
    await stage.policies.say()
    assert len(stage.told.said) == 2 and stage.told.said[0][1].node_pools != stage.told.said[1][1].node_pools


def test_a_node_pool_is_told_when_other_rules_hold_for_it(stage: Stage) -> None:
    stage.write(policy("p", **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert stage.look().pools == {"gpu"}
    stage.write(policy("p", generation=2, **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert stage.look().pools == set()


def test_disruption_that_cannot_be_read_holds_its_pool_and_goes_on_when_it_is_mended(stage: Stage) -> None:
    stage.write(policy("p", **GPU, disruption={"minimumNodeAge": "1h"}))
    stage.look()
    before = stage.caches.changes.stirs
    stage.write(policy("p", generation=2, **GPU, disruption={"minimumNodeAge": "0s"}))
    assert stage.look().pools == {"gpu"}
    assert "spec.disruption.minimumNodeAge: '0s'" in stage.policies.unread_of("gpu").disruption
    assert stage.policies.unread_of("general") == ALL_READ
    stage.write(policy("p", generation=3, **GPU, disruption={"minimumNodeAge": "2h"}))
    assert stage.look().pools == {"gpu"} and stage.policies.unread_of("gpu") == ALL_READ
    assert stage.caches.changes.stirs == before + 2, "the Cluster workflow looks anew"


def test_a_hold_alone_is_told_to_the_node_pool(stage: Stage) -> None:
    stage.write(policy("p", **GPU, disruption={"rates": 7}))
    due = stage.look()
    assert (due.pools, due.claims) == ({"gpu"}, set())
    assert "spec.disruption.rates: 7 cannot be read" in stage.policies.unread_of("gpu").disruption


def test_claims_are_told_which_policies_speak_of_events_also_when_only_the_name_is_new(stage: Stage) -> None:
    speaks: dict[str, Any] = {"interruption": {"scheduledChange": {"action": "notify"}}}
    stage.write(policy("maintenance", **GPU, **speaks))
    assert stage.look().claims == {"g1"}
    assert stage.policies.event_policies_of("gpu") == {"scheduledChange": "maintenance"}
    assert stage.policies.event_policies_of("general") == {}
    stage.write(policy("alike", **GPU, **speaks))
    assert stage.look().claims == {"g1"}
    assert set(stage.policies.event_policies_of("gpu")["scheduledChange"].split(", ")) == {"alike", "maintenance"}


def test_claims_are_told_that_nobody_can_read_what_follows_an_event_and_that_it_is_mended(stage: Stage) -> None:
    stage.write(policy("p", **GPU, interruption={"scheduledChange": {"lead": "soon"}}))
    assert stage.look().claims == {"g1"}
    assert "spec.interruption.scheduledChange.lead" in stage.policies.unread_of("gpu").interruption
    stage.write(policy("p", generation=2, **GPU))
    assert stage.look().claims == {"g1"}
    assert stage.policies.unread_of("gpu") == ALL_READ
