"""LifecyclePolicies in the controller: rules per NodePool, requeued NodeClaims, and validation statuses."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.cache.changes import CacheChanged, ChangeSet
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import NO_INVALID_RULES, PolicyValidation
from tenure.policy.policy_features import PolicyFeatures
from tests.support.controller.builders import CacheHarness, claim, pool, stamp
from tests.support.injected_errors import fail_for, named


class FakePolicyPort:
    """Records written validations. The next `failures` calls fail."""

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
    """`age` is in seconds."""
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation, "creationTimestamp": stamp(-age)}
    return {"metadata": metadata, "spec": spec}


def test_policy_that_raises_an_error_affects_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
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
        """Apply pending changes. Returns the change set with requeued objects."""
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


def test_policy_requeues_only_nodeclaims_of_its_nodepools(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"deadline": "4m"}))
    assert harness.wake_count == 1
    due = harness.update()
    assert (due.nodeclaims, due.nodepools) == ({"g1"}, {"gpu"})
    assert harness.policies.deadlines_of("gpu").launch == timedelta(minutes=4)
    assert harness.policies.rules_of("general") is None
    harness.remove("p")
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.rules_of("gpu") is None


def test_unchanged_rules_requeue_no_nodeclaim(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, launch={"deadline": "4m"}))
    harness.update()
    harness.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert harness.update().nodeclaims == set()
    harness.write(policy("p", generation=2, nodePoolSelector={"names": ["gpu", "later"]}, launch={"deadline": "4m"}))
    assert harness.wake_count == 2, "an update of the status alone"


def test_newly_labeled_nodepool_is_selected(harness: PolicyHarness) -> None:
    harness.write(policy("p", nodePoolSelector={"matchLabels": {"team": "a"}}, notReadyGrace="9m"))
    assert harness.update().nodeclaims == set() and harness.policies.not_ready_grace_periods() == {}
    labelled = pool("gpu")
    labelled["metadata"]["labels"] = {"team": "a"}
    harness.apply_objects("nodepools", labelled)
    assert "g1" in harness.update().nodeclaims
    assert harness.policies.not_ready_grace_periods() == {"gpu": timedelta(minutes=9)}


def test_rules_of_a_deleted_nodepool_last_until_its_last_nodeclaim(harness: PolicyHarness) -> None:
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


def test_unreadable_policy_affects_no_other(harness: PolicyHarness) -> None:
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


async def test_no_validation_is_written_before_the_sync(harness: PolicyHarness) -> None:
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
async def test_created_or_deleted_nodepool_updates_the_validation(harness: PolicyHarness, change: Change) -> None:
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


def test_nodepool_is_requeued_when_its_rules_change(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert harness.update().nodepools == {"gpu"}
    harness.write(policy("p", generation=2, **GPU, rollout={"waves": [{"nodes": "1"}]}))
    assert harness.update().nodepools == set()


def test_unreadable_disruption_rules_block_their_nodepool_until_fixed(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, disruption={"minimumNodeAge": "1h"}))
    harness.update()
    before = harness.cache.planner_changes.disruption_changes
    harness.write(policy("p", generation=2, **GPU, disruption={"minimumNodeAge": "0s"}))
    assert harness.update().nodepools == {"gpu"}
    assert "spec.disruption.minimumNodeAge: '0s'" in harness.policies.unread_of("gpu").disruption
    assert harness.policies.unread_of("general") == NO_INVALID_RULES
    harness.write(policy("p", generation=3, **GPU, disruption={"minimumNodeAge": "2h"}))
    assert harness.update().nodepools == {"gpu"} and harness.policies.unread_of("gpu") == NO_INVALID_RULES
    assert harness.cache.planner_changes.disruption_changes == before + 2, "the Cluster workflow runs another pass"


def test_unreadable_disruption_rules_requeue_only_the_nodepool(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, disruption={"rates": 7}))
    due = harness.update()
    assert (due.nodepools, due.nodeclaims) == ({"gpu"}, set())
    assert "spec.disruption.rates: 7 cannot be read" in harness.policies.unread_of("gpu").disruption


def test_nodeclaims_are_requeued_when_the_policies_of_an_event_kind_change(harness: PolicyHarness) -> None:
    rules: dict[str, Any] = {"interruption": {"scheduledChange": {"action": "notify"}}}
    harness.write(policy("maintenance", **GPU, **rules))
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.event_policies_of("gpu") == {"scheduledChange": "maintenance"}
    assert harness.policies.event_policies_of("general") == {}
    harness.write(policy("equal", **GPU, **rules))
    assert harness.update().nodeclaims == {"g1"}
    assert set(harness.policies.event_policies_of("gpu")["scheduledChange"].split(", ")) == {"equal", "maintenance"}


def test_unreadable_interruption_rules_requeue_nodeclaims_until_fixed(harness: PolicyHarness) -> None:
    harness.write(policy("p", **GPU, interruption={"scheduledChange": {"lead": "soon"}}))
    assert harness.update().nodeclaims == {"g1"}
    assert "spec.interruption.scheduledChange.lead" in harness.policies.unread_of("gpu").interruption
    harness.write(policy("p", generation=2, **GPU))
    assert harness.update().nodeclaims == {"g1"}
    assert harness.policies.unread_of("gpu") == NO_INVALID_RULES
