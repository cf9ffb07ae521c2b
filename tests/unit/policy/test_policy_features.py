"""LifecyclePolicies with features that a setting disables: their effective rules and status."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import PolicyFact
from tenure.policy.interruption.decision import drains_immediately
from tenure.policy.lifecycle_policy import Resolved, policy_name_by_hook_point, resolve_policies
from tenure.policy.policy_features import PolicyFeatures

SURGE: dict[str, Any] = {"drain": {"surgeSingleReplicas": True, "whenBlocked": "wait"}}
IMDS: dict[str, Any] = {"hooks": {"afterDrain": [{"name": "a", "http": {"url": "http://[::ffff:a9fe:a9fe]/latest"}}]}}
ALL = PolicyFeatures(surge_single_replicas=True, hook_local_addresses=True)


def fact(name: str = "web", **spec: Any) -> PolicyFact:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return policy_fact({"metadata": metadata, "spec": spec})


def resolve(*policies: PolicyFact, features: PolicyFeatures | None = None) -> Resolved:
    return resolve_policies(policies, {"gpu": {}}, Deadlines(), features)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SURGE, "spec.drain.surgeSingleReplicas: true has no effect: set SURGE_SINGLE_REPLICAS=true and apply"),
        (
            IMDS,
            "spec.hooks.afterDrain[0].http.url: '::ffff:a9fe:a9fe' is a link-local address, so the hook fails; "
            "expected another address, or HOOK_LOCAL_ADDRESSES=true",
        ),
    ],
)
def test_status_names_field_value_and_setting(spec: dict[str, Any], expected: str) -> None:
    validation = resolve(fact(**spec)).validations["web"]
    assert (validation.rejected, validation.reason, validation.node_pools) == (False, "DisabledBySetting", ("gpu",))
    assert validation.message.startswith(expected)
    assert resolve(fact(**spec), features=ALL).validations["web"].reason == ""


def test_drain_has_no_surge_while_the_setting_is_off() -> None:
    """Therefore the pods of an interrupted node are evicted at once."""
    off, on = (resolve(fact(**SURGE), features=one).rules["gpu"] for one in (None, ALL))
    assert off == LifecycleRules.model_validate({"drain": {"whenBlocked": "wait"}})
    assert on == LifecycleRules.model_validate(SURGE)
    assert drains_immediately(off, "spotInterruption") and not drains_immediately(on, "spotInterruption")


def test_most_specific_policy_with_hooks_at_a_point_is_named() -> None:
    hook = [{"name": "a", "http": {"url": "https://hooks.example.com"}}]
    unselective = fact("all", hooks={"beforeDrain": hook, "afterDrain": hook})
    selective = fact("gpu", hooks={"beforeDrain": hook}, nodePoolSelector={"names": ["gpu"]})
    found = policy_name_by_hook_point(
        resolve_policies([unselective, selective], {"gpu": {}, "cpu": {}}, Deadlines()).policies
    )
    assert found == {
        "gpu": {"beforeDrain": "gpu", "afterDrain": "all"},
        "cpu": {"beforeDrain": "all", "afterDrain": "all"},
    }
