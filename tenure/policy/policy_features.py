"""Fields of LifecyclePolicies that have an effect only if a setting of the worker enables them."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.base import Value
from tenure.policy.hooks.addresses import HOOK_LOCAL_ADDRESSES, MAX_HOST_LENGTH, local_host_kind
from tenure.policy.hooks.rules import POINTS, hook_field, hooks_of

_SURGE_REMEDY = (
    "set SURGE_SINGLE_REPLICAS=true and apply deploy/rbac/optional/surge-single-replicas.yaml (the chart's value "
    "settings.SURGE_SINGLE_REPLICAS does both), or leave the field out"
)


class PolicyFeatures(Value):
    """Settings of the worker, all off by default."""

    surge_single_replicas: bool = False
    hook_local_addresses: bool = False


def enabled_rules(rules: LifecycleRules, features: PolicyFeatures) -> LifecycleRules:
    """The rules without fields that a setting disables."""
    drain = rules.drain
    if drain is None or drain.surge_single_replicas is None or features.surge_single_replicas:
        return rules
    return rules.model_copy(update={"drain": drain.model_copy(update={"surge_single_replicas": None})})


def disabled_requests(rules: LifecycleRules, features: PolicyFeatures) -> Iterator[str]:
    """Messages for fields that a setting disables: field, value and setting."""
    if rules.drain and rules.drain.surge_single_replicas and not features.surge_single_replicas:
        yield f"spec.drain.surgeSingleReplicas: true has no effect: {_SURGE_REMEDY}"
    if not features.hook_local_addresses:
        yield from _local_addresses(rules)


def _local_addresses(rules: LifecycleRules) -> Iterator[str]:
    for point in POINTS:
        for hook in hooks_of(rules, point):
            host = _host_of(hook.http.url) if hook.http else ""
            if kind := local_host_kind(host):
                yield (
                    f"{hook_field(rules, point, hook.name)}.http.url: {host[:MAX_HOST_LENGTH]!r} is {kind}, so the "
                    f"hook fails; expected another address, or {HOOK_LOCAL_ADDRESSES}=true"
                )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
