"""Pods, budgets and verdicts of drains, each with what a test does not speak of left at what is usual."""

from typing import Any

from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import DrainState, DrainStatus, EvictionBlocker, EvictionBudget
from tenure.model.facts import Expression
from tenure.model.provider_results import DrainPod

WEB = (Expression(key="app", operator="In", values=("web",)),)


def pod(name: str = "web", **fields: Any) -> DrainPod:
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "waits": True,
        "evictable": True,
        "group": 0,
        "reschedulable": True,
        "owner_kind": "ReplicaSet",
        "owner_name": "web-5d9",
        "labels": {"app": "web"},
    }
    return DrainPod(**{**defaults, **fields})


def budget(name: str = "web", **fields: Any) -> EvictionBudget:
    """minAvailable 2 of two pods, both healthy."""
    defaults: dict[str, Any] = {"selector": WEB, "min_available": "2", "expected": 2, "desired": 2, "current": 2}
    return EvictionBudget(**{"namespace": "default", "name": name, **defaults, **fields})


def blocker(subject: str = "default/web", **fields: Any) -> EvictionBlocker:
    return EvictionBlocker(**{"subject": subject, "uid": "u", "cause": "budget", "what": "a budget", **fields})


def blocked_drain(*, cancellable: bool = False, **status: Any) -> DrainState:
    return DrainState(defers_deletion=cancellable, status=DrainStatus(**{"eviction_blockers": (blocker(),), **status}))


def rules(**written: Any) -> DrainRules:
    """As a person writes them."""
    return DrainRules.model_validate(written)
