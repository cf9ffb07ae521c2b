"""Transitions of conditions are published as events of the object, in Karpenter's form."""

from collections.abc import Callable
from datetime import UTC, datetime

from tenure.apis.labels import NODECLAIM_CONDITIONS
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.patches import condition_transitions
from tenure.kube.client.resources import EVENTS
from tenure.model.provider_results import ConditionPatch
from tests.support.kube.builders import claim_json

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": kind, "message": message}


def test_first_status_of_a_readiness_condition_is_a_transition_from_unknown() -> None:
    found = condition_transitions(
        (), [condition("Launched", "True"), condition("Registered", "Unknown")], dependents=NODECLAIM_CONDITIONS
    )
    assert [transition.event_message for transition in found] == [
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched"
    ]


def test_first_status_of_other_conditions_is_no_transition() -> None:
    before, after = condition("Drained", "Unknown"), condition("Drained", "True", "all gone")
    assert condition_transitions((), [before], dependents=NODECLAIM_CONDITIONS) == []
    (transition,) = condition_transitions([before], [after], dependents=NODECLAIM_CONDITIONS)
    assert transition.event_message.endswith(
        "Type: Drained, Status: Unknown -> True, Reason: Drained, Message: all gone"
    )


def test_new_reason_with_the_same_status_is_no_transition() -> None:
    before, after = condition("Launched", "Unknown"), condition("Launched", "Unknown") | {"reason": "LaunchFailed"}
    assert condition_transitions([before], [after], dependents=NODECLAIM_CONDITIONS) == []


async def test_nodeclaim_lifecycle_is_published_as_events(
    kube: KubeAdapters, admin: KubeClient, unique: Callable[[str], str]
) -> None:
    claim = await kube.claims.create(NodeClaim.from_object(claim_json(unique("claim"))))
    for kind in NODECLAIM_CONDITIONS:
        for _ in range(2):
            done = ConditionPatch(type=kind, status="True")
            await kube.claims.patch(claim.name, claim.uid, conditions=(done,), now=NOW)
    await kube.claims.ensure_finalizer(claim.name, claim.uid)
    await kube.claims.delete(claim.name, claim.uid)
    await kube.claims.release(claim.name, claim.uid)
    await kube.events.flush()
    selector = {"fieldSelector": f"involvedObject.uid={claim.uid}"}
    events = await admin.request("GET", EVENTS.path(namespace="default"), params=selector)
    assert sorted((event["reason"], event["type"]) for event in events["items"]) == [
        (reason, "Normal") for reason in ("Finalized", "Initialized", "Launched", "Ready", "Registered")
    ]
