"""LifecyclePolicies: read, also where they make no sense, and their verdicts written onto a real API server."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller import gates
from kube.adapters import KubeAdapters
from kube.client import KubeClient
from kube.lifecycle_policies import policy_fact
from kube.resources import LIFECYCLE_POLICIES
from model.faults import BadInput
from model.kinds import LifecyclePolicy
from model.policies import PolicyVerdict

Unique = Callable[[str], str]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
METADATA = {"name": "p", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}


def fact(**spec: Any) -> Any:
    return policy_fact({"metadata": METADATA, "spec": spec})


def test_a_policy_is_read_with_its_selector_apart_from_its_rules() -> None:
    found = fact(nodePoolSelector={"names": ["a"]}, drain={"deadline": "1h"})
    assert (found.names, found.match_labels, found.precision, found.problem) == (("a",), {}, 2, "")
    assert found.rules.to_object() == {"drain": {"deadline": "1h"}}
    assert (fact(nodePoolSelector={"matchLabels": {"a": "b"}}).precision, fact().precision) == (1, 0)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"launch": {"whenOverdue": "explode"}}, "spec.launch.whenOverdue: 'explode' cannot be read: Input should be"),
        ({"launch": {"deadline": 5}}, "spec.launch.deadline: 5 cannot be read"),
        ({"nodePoolSelector": {}}, "spec.nodePoolSelector: it chooses by one of the two; write 'names' or"),
    ],
)
def test_what_an_older_version_let_in_is_said_of_the_policy(spec: dict[str, Any], problem: str) -> None:
    found = fact(**spec)
    assert found.problem.startswith(problem) and found.name == "p"


def test_of_a_spec_that_cannot_be_read_its_selector_and_what_narrows_disruption_are() -> None:
    windows = {"windows": [{"schedule": "@daily", "duration": "4h"}]}
    found = fact(nodePoolSelector={"names": ["a"]}, launch={"deadline": 5}, disruption=windows, rollout={"waves": 7})
    assert found.names == ("a",) and found.rules.to_object() == {"disruption": windows}
    assert found.unread.rollout.startswith("spec.rollout.waves: 7 cannot be read") and not found.unread.disruption


def test_of_events_that_cannot_be_read_the_kinds_that_can_are() -> None:
    ignore = {"action": "ignore"}
    found = fact(interruption={"scheduledChange": {"action": "pray"}, "spotInterruption": ignore, "workloads": 7})
    assert found.rules.to_object() == {"interruption": {"spotInterruption": ignore}}
    assert found.unread.interruption.startswith("spec.interruption.scheduledChange.action: 'pray' cannot be read")
    sound = fact(interruption={"spotInterruption": ignore}, launch={"deadline": 5})
    assert sound.rules.to_object() == {"interruption": {"spotInterruption": ignore}} and not sound.unread.interruption
    nothing = fact(interruption=7)
    assert nothing.unread.interruption and nothing.rules.to_object() == {"interruption": {}}


async def read(admin: KubeClient, name: str) -> LifecyclePolicy:
    return LifecyclePolicy.from_object(await admin.request("GET", LIFECYCLE_POLICIES.path(name)))


async def test_a_verdict_is_written_with_the_worker_s_rights_and_once(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("policy")
    body = {
        "apiVersion": LIFECYCLE_POLICIES.api_version,
        "kind": "LifecyclePolicy",
        "metadata": {"name": name},
        "spec": {"nodePoolSelector": {"names": [unique("nobody")]}, "launch": {"deadline": "4m"}},
    }
    made = await admin.request("POST", LIFECYCLE_POLICIES.path(), body=body)
    uid, say = made["metadata"]["uid"], kube.lifecycle_policies.say
    refused = PolicyVerdict(refused=True, reason="Conflict", message="with another", node_pools=("a", "b"))
    assert await say(name, uid, refused, now=NOW)
    found = await read(admin, name)
    condition, ready = found.condition("ValidationSucceeded"), found.condition("Ready")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Conflict")
    assert ready is not None and ready.is_false and found.status.node_pools == ("a", "b")

    assert await say(name, uid, refused, now=NOW + timedelta(hours=1))
    assert (await read(admin, name)).metadata.resource_version == found.metadata.resource_version
    assert await say(name, uid, PolicyVerdict(), now=NOW + timedelta(hours=2))
    heeded = await read(admin, name)
    assert heeded.is_true("Ready") and heeded.status.node_pools == ()

    await admin.request("DELETE", LIFECYCLE_POLICIES.path(name))
    assert not await say(name, uid, refused, now=NOW)


async def test_a_kind_that_is_not_installed_is_named_at_the_start_with_what_to_do(
    kube: KubeAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gates.check(kube.client, dict.fromkeys(("NodeOverlay", "CapacityBuffer"), False))
    missing = LIFECYCLE_POLICIES.__class__("tenure.sh/v1alpha1", "nosuchthings", "NoSuchThing")
    monkeypatch.setattr(gates, "LIFECYCLE_POLICIES", missing)
    with pytest.raises(BadInput, match=r"nosuchthings .* cannot be listed: .*kubectl apply -f deploy/crds"):
        await gates.check(kube.client, dict.fromkeys(("NodeOverlay", "CapacityBuffer"), False))
