"""Rules of a drain under a LifecyclePolicy."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.lifecyclepolicy import LifecycleRules

Runs = dict[str, WorkflowHandle[Any, Any]]


def _drain_rules(**drain: Any) -> dict[str, Any]:
    return {"rules": LifecycleRules.model_validate({"drain": drain})}
