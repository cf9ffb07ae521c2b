"""Pods, budgets and blockers of drains with usual defaults for all fields that a test does not set."""

from typing import Any

from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import DrainState, DrainStatus, EvictionBlocker
from tenure.model.facts import Expression, PodDisruptionBudgetFact
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


def budget(name: str = "web", **fields: Any) -> PodDisruptionBudgetFact:
    """A budget with minAvailable 2 for two healthy pods."""
    defaults: dict[str, Any] = {"selector": WEB, "min_available": "2", "expected": 2, "desired": 2, "current": 2}
    return PodDisruptionBudgetFact(**{"namespace": "default", "name": name, **defaults, **fields})


def blocker(subject: str = "default/web", **fields: Any) -> EvictionBlocker:
    return EvictionBlocker(**{"subject": subject, "uid": "u", "cause": "budget", "what": "a budget", **fields})


def blocked_drain(*, cancellable: bool = False, **status: Any) -> DrainState:
    return DrainState(defers_deletion=cancellable, status=DrainStatus(**{"eviction_blockers": (blocker(),), **status}))


def rules(**written: Any) -> DrainRules:
    """DrainRules from the fields of a LifecyclePolicy."""
    return DrainRules.model_validate(written)
