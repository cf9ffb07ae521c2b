"""Nodes that AWS says something of."""

from datetime import datetime, timedelta
from typing import Any

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.interruption.notices import EventKind, Notice
from tenure.model.interruption.records import Answer, Remembered
from tenure.model.launch import Launched
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.interruption.events import key_of
from tests.unit.policy.builders import NOW, before, node

SUNDAYS: dict[str, Any] = {"schedule": "0 2 * * 0", "duration": "2h", "timeZone": "Europe/Berlin"}
STATEFUL: dict[str, Any] = {"matchLabels": {"example.com/state": "kept"}, "action": "waitForApproval"}
YES = Answer(approved=True, by="ann", at=NOW)
NO = Answer(approved=False, by="bob", reason="quarter's end", at=NOW)


def notice(kind: EventKind = "scheduledChange", **fields: Any) -> Notice:
    code = "instance-retirement" if kind == "scheduledChange" else ""
    usual = {"kind": kind, "id": f"id-{kind}", "at": before(minutes=5), "code": code}
    return Notice.model_validate({**usual, **fields})


def heard(*notices: Notice, answer: Answer | None = None, at: datetime | None = None) -> tuple[Remembered, ...]:
    return tuple(Remembered(notice=one, heard=at or before(minutes=5), answer=answer) for one in notices)


def rules(**interruption: Any) -> LifecycleRules:
    return LifecycleRules.model_validate({"interruption": interruption})


def told(
    *notices: Notice, said: dict[str, Any] | None = None, answer: Answer | None = None, **state: Any
) -> ClaimState:
    """A ready on-demand node that AWS said this of; `said` are its rules for these kinds of events."""
    seen = {"rules": rules(**said) if said else None, **state.pop("seen", {})}
    usual = {"initialized": True, "launched": bought("on-demand"), "notices": heard(*notices, answer=answer)}
    return node(seen, **{**usual, **state})


def bought(capacity_type: str) -> Launched:
    return Launched(
        claim_uid="uid-a",
        provider_id="aws:///us-west-2a/i-1",
        instance_type="m7i.large",
        zone="us-west-2a",
        capacity_type=capacity_type,
        image_id="ami-1",
    )


def drained_for(one: Notice, **fields: Any) -> ClaimState:
    return told(one, interrupted=key_of(one), **fields)


def in_days(days: float) -> datetime:
    return NOW + timedelta(days=days)
