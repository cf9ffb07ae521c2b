"""LifecyclePolicies where the watch is hosted: from the API server's objects to rules, claims and verdicts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.cache.dirty import CacheChanged, ChangeSet
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import NO_INVALID_RULES, PolicyValidation
from tenure.policy.policy_features import PolicyFeatures
from tests.support.controller.builders import CacheHarness, claim, pool, stamp
from tests.support.injected_errors import fail_for, named


class FakePolicyPort:
    """The port: what was said, and how often it is to fail."""

    def __init__(self) -> None:
        self.written: list[tuple[str, PolicyValidation]] = []
        self.failures = 0

    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        if self.failures:
            self.failures -= 1
            raise TryLater("told to fail")
        self.written.append((name, validation))
        return True


def policy(name: str, *, generation: int = 1, age: float = 100, **spec: Any) -> dict[str, Any]:
    """`age` in seconds."""
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation, "creationTimestamp": stamp(-age)}
    return {"metadata": metadata, "spec": spec}


def test_a_policy_that_raises_an_error_hurts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.policy.lifecycle_policy.problem_in", named("bad"), RuntimeError("injected"))
    harness = PolicyHarness()
    harness.apply_objects("nodepools", pool())
    harness.write(policy("bad", launch={"deadline": "3m"}), policy("good", launch={"deadline": "4m"}))
    harness.update()
    assert harness.policies.deadlines_of("general").launch == timedelta(minutes=4)
    assert harness.cache.invalid_objects.count() == {("LifecyclePolicy", "RuntimeError"): 1}


class PolicyHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.policy_port, self.wake_count = FakePolicyPort(), 0
        self.policies = LifecyclePolicies(
            self.cache,
            self.policy_port,
            default_deadlines=Deadlines(),
            features=PolicyFeatures(),
            now=lambda: self.now,
        )
        self.cache.subscribe(CacheChanged, self._count_wake)

    def _count_wake(self, _: CacheChanged) -> None:
        self.wake_count += 1

    def write(self, *policies: dict[str, Any]) -> None:
        self.policies.on_deltas([Delta(one) for one in policies])

    def remove(self, name: str) -> None:
        self.policies.on_deltas([Delta(policy(name), is_deleted=True)])

    def update(self) -> ChangeSet:
        """What is due after it."""
        changes = self.cache.drain_changes()
        self.policies.update(changes)
        return changes


@pytest.fixture
def harness() -> PolicyHarness:
    harness = PolicyHarness()
    harness.apply_objects("nodepools", pool("general"), pool("gpu"))
    harness.apply_objects("nodeclaims", claim("c1"), claim("g1", pool="gpu"))
    harness.update()
    harness.wake_count = 0
    return harness


GPU: dict[str, Any] = {"nodePoolSelector": {"names": ["gpu"]}}


def test_a_policy_makes_the_claims_of_its_pools_due_and_no_others(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"deadline": "4m"}))
    assert harness.wake_count == 1
    due = harness.update()
    assert (due.nodeclaims, due.nodepools) == ({"g1"}, {"gpu"})
    assert harness.policies.deadlines_of("gpu").launch == timedelta(minutes=4)
    assert harness.policies.rules_of("general") is None
    harness.remove("p")
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.rules_of("gpu") is None


def test_what_changes_nothing_for_a_pool_makes_no_claim_due(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"deadline": "4m"}))
    harness.update()
    harness.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert harness.update().nodeclaims == set()
    harness.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert harness.wake_count == 2, "its own status"


def test_a_pool_that_gets_a_label_is_selected_by_it(harness: PolicyHarness) -> None:
    harness.write(policy("p", nodePoolSelector={"matchLabels": {"team": "a"}}, notReadyGrace="9m"))
    assert harness.update().nodeclaims == set() and harness.policies.not_ready_grace_periods() == {}
    labelled = pool("gpu")
    labelled["metadata"]["labels"] = {"team": "a"}
    harness.apply_objects("nodepools", labelled)
    assert "g1" in harness.update().nodeclaims
    assert harness.policies.not_ready_grace_periods() == {"gpu": timedelta(minutes=9)}


def test_nodes_of_a_pool_that_is_gone_are_drained_by_its_rules(harness: PolicyHarness) -> None:
    labelled = pool("gpu")
    labelled["metadata"]["labels"] = {"team": "a"}
    harness.apply_objects("nodepools", labelled)
    harness.write(policy("p", nodePoolSelector={"matchLabels": {"team": "a"}}, drain={"deadline": "2h"}))
    harness.update()
    harness.delete_objects("nodepools", labelled)
    assert harness.update().nodeclaims == set()
    assert harness.policies.rules_of("gpu") is not None
    harness.delete_objects("nodeclaims", claim("g1", pool="gpu"))
    harness.update()
    assert harness.policies.rules_of("gpu") is None


def test_one_that_cannot_be_read_hurts_only_itself(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"whenOverdue": "explode"}), policy("q", notReadyGrace="1m"))
    harness.update()
    assert set(harness.policies.not_ready_grace_periods()) == {"general", "gpu"}


async def test_policy_validation_is_written_once_per_change(harness: PolicyHarness) -> None:
    harness.write(policy("old", age=200, notReadyGrace="1m"), policy("young", notReadyGrace="2m"))
    harness.update()
    assert await harness.policies.write_validations() and await harness.policies.write_validations()
    assert sorted((name, one.reason) for name, one in harness.policy_port.written) == [
        ("old", "Conflict"),
        ("young", "Conflict"),
    ]
    harness.policy_port.written.clear()
    harness.remove("young")
    harness.update()
    await harness.policies.write_validations()
    assert [(name, one.reason, one.node_pools) for name, one in harness.policy_port.written] == [
        ("old", "", ("general", "gpu"))
    ]


async def test_failed_write_of_validation_is_retried(harness: PolicyHarness) -> None:
    harness.write(policy("p", launch={"deadline": "0s"}))
    harness.update()
    harness.policy_port.failures = 1
    assert not await harness.policies.write_validations()
    assert await harness.policies.write_validations()
    assert [(name, one.rejected, one.reason) for name, one in harness.policy_port.written] == [
        ("p", True, "RuntimeValidation")
    ]


async def test_nothing_is_said_before_all_policies_and_pools_are_known(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"deadline": "4m"}))
    assert not harness.policies.update(harness.cache.drain_changes(), known=False)
    await harness.policies.write_validations()
    assert harness.policy_port.written == [] and harness.policies.rules_of("gpu") is None
    assert harness.update().nodeclaims == {"g1"}
    await harness.policies.write_validations()
    assert len(harness.policy_port.written) == 1


Change = Callable[[PolicyHarness], None]


@pytest.mark.parametrize(
    "change",
    [
        lambda harness: harness.apply_objects("nodepools", pool("later")),
        lambda harness: harness.delete_objects("nodepools", pool("general")),
    ],
)
async def test_a_pool_that_comes_or_goes_is_told_on_the_policy(harness: PolicyHarness, change: Change) -> None:
    harness.delete_objects("nodeclaims", claim("c1"))
    harness.write(policy("p", notReadyGrace="1m"))
    harness.update()
    await harness.policies.write_validations()
    change(harness)
    harness.update()
    await harness.policies.write_validations()
    assert (
        len(harness.policy_port.written) == 2
        and harness.policy_port.written[0][1].node_pools != harness.policy_port.written[1][1].node_pools
    )


def test_a_node_pool_is_told_when_other_rules_hold_for_it(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert harness.update().nodepools == {"gpu"}
    harness.write(policy("p", generation=2, **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert harness.update().nodepools == set()


def test_disruption_that_cannot_be_read_holds_its_pool_and_goes_on_when_it_is_mended(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, disruption={"minimumNodeAge": "1h"}))
    harness.update()
    before = harness.cache.planner_changes.disruption_changes
    harness.write(policy("p", generation=2, **GPU, disruption={"minimumNodeAge": "0s"}))
    assert harness.update().nodepools == {"gpu"}
    assert "spec.disruption.minimumNodeAge: '0s'" in harness.policies.unread_of("gpu").disruption
    assert harness.policies.unread_of("general") == NO_INVALID_RULES
    harness.write(policy("p", generation=3, **GPU, disruption={"minimumNodeAge": "2h"}))
    assert harness.update().nodepools == {"gpu"} and harness.policies.unread_of("gpu") == NO_INVALID_RULES
    assert harness.cache.planner_changes.disruption_changes == before + 2, "the Cluster workflow looks anew"


def test_a_hold_alone_is_told_to_the_node_pool(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, disruption={"rates": 7}))
    due = harness.update()
    assert (due.nodepools, due.nodeclaims) == ({"gpu"}, set())
    assert "spec.disruption.rates: 7 cannot be read" in harness.policies.unread_of("gpu").disruption


def test_claims_are_told_which_policies_speak_of_events_also_when_only_the_name_is_new(harness: PolicyHarness) -> None:
    speaks: dict[str, Any] = {"interruption": {"scheduledChange": {"action": "notify"}}}
    harness.write(policy("maintenance", **GPU, **speaks))
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.event_policies_of("gpu") == {"scheduledChange": "maintenance"}
    assert harness.policies.event_policies_of("general") == {}
    harness.write(policy("alike", **GPU, **speaks))
    assert harness.update().nodeclaims == {"g1"}
    assert set(harness.policies.event_policies_of("gpu")["scheduledChange"].split(", ")) == {"alike", "maintenance"}


def test_claims_are_told_that_nobody_can_read_what_follows_an_event_and_that_it_is_mended(
    harness: PolicyHarness,
) -> None:
    harness.write(policy("p", **GPU, interruption={"scheduledChange": {"lead": "soon"}}))
    assert harness.update().nodeclaims == {"g1"}
    assert "spec.interruption.scheduledChange.lead" in harness.policies.unread_of("gpu").interruption
    harness.write(policy("p", generation=2, **GPU))
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.unread_of("gpu") == NO_INVALID_RULES
