"""Parses PodDisruptionBudgets into facts for drains and for voluntary disruption."""

from collections.abc import Mapping
from typing import Any

from tenure.kube.facts.pod_topology import selector_expressions
from tenure.model.facts import PodDisruptionBudgetFact

Json = Mapping[str, Any]


def pod_budget_fact(budget: Json) -> PodDisruptionBudgetFact:
    metadata, spec, status = budget["metadata"], budget.get("spec") or {}, budget.get("status") or {}
    return PodDisruptionBudgetFact.model_validate(
        {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "selector": selector_expressions(spec.get("selector"), "spec.selector"),
            "min_available": _int_or_percent_text(spec.get("minAvailable")),
            "max_unavailable": _int_or_percent_text(spec.get("maxUnavailable")),
            "expected": status.get("expectedPods", 0),
            "desired": status.get("desiredHealthy", 0),
            "current": status.get("currentHealthy", 0),
            "allowed": status.get("disruptionsAllowed", 0),
            "counted": status.get("observedGeneration", 0) >= metadata.get("generation", 0),
            "sync_failed": _sync_failed(status),
            "always_allow_unhealthy": spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
        }
    )


def _int_or_percent_text(value: Any) -> str:
    """A number or a percentage; empty if unset."""
    return "" if value is None else str(value)


def _sync_failed(status: Json) -> str:
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionAllowed" and one.get("reason") == "SyncFailed":
            return one.get("message") or "SyncFailed"
    return ""
