"""LifecyclePolicy hooks with their defaults and problems."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_events import Hook, HookRules
from tenure.model.hooks import HookPoint

TIMEOUT: Final = timedelta(minutes=5)
MAX_TIMEOUT: Final = timedelta(hours=24)
MAX_TEMPLATE_BYTES: Final = 8192
"""Bytes of a Job template as JSON, which every NodeClaim workflow stores."""
POINTS: Final[tuple[HookPoint, ...]] = ("beforeDrain", "afterDrain", "beforeTerminate")


def hooks_of(rules: LifecycleRules | None, point: HookPoint) -> tuple[Hook, ...]:
    hook_rules = rules.hooks if rules else None
    return _hooks_at(hook_rules, point) if hook_rules else ()


def _hooks_at(rules: HookRules, point: HookPoint) -> tuple[Hook, ...]:
    hooks = {
        "beforeDrain": rules.before_drain,
        "afterDrain": rules.after_drain,
        "beforeTerminate": rules.before_terminate,
    }
    return hooks[point] or ()


def hook_field(rules: LifecycleRules | None, point: HookPoint, name: str) -> str:
    """The hook's field in its policy, such as `spec.hooks.beforeDrain[0]`."""
    number = next((number for number, one in enumerate(hooks_of(rules, point)) if one.name == name), 0)
    return f"spec.hooks.{point}[{number}]"


def timeout_of(hook: Hook) -> timedelta:
    return parse_duration_or_none(hook.timeout) or TIMEOUT


def can_hook_cancel_drain(rules: LifecycleRules | None) -> bool:
    """Voluntary drains then run before the NodeClaim is deleted, so that a hook can cancel them."""
    return any(hook.on_failure == "giveUp" for hook in hooks_of(rules, "beforeDrain"))


def problems_of(rules: HookRules, field: str = "hooks") -> Iterator[str]:
    """Problems that the API server cannot check, or has not checked: field, value and expected form."""
    for point in POINTS:
        names: set[str] = set()
        for number, hook in enumerate(_hooks_at(rules, point)):
            where = f"{field}.{point}[{number}]"
            yield from (f"{where}{problem}" for problem in _hook_problems(hook, point))
            if hook.name in names:
                yield f"{where}.name: {hook.name!r}: duplicate name, expected a unique name"
            names.add(hook.name)


def _hook_problems(hook: Hook, point: HookPoint) -> Iterator[str]:
    if (hook.http is None) == (hook.job is None):
        yield f": hook {hook.name!r}: expected exactly one of 'http' and 'job'"
    if hook.http is not None:
        yield from _url_problems(hook.http.url)
    if hook.job is not None:
        yield from _template_problems(hook.job.template)
    if hook.timeout is not None:
        span = parse_duration_or_none(hook.timeout)
        if span is None:
            yield f".timeout: {hook.timeout!r}: invalid duration, expected e.g. 5m"
        elif not timedelta(0) < span <= MAX_TIMEOUT:
            yield f".timeout: {hook.timeout!r}: invalid duration, expected more than 0s and at most 24h, such as 5m"
    if hook.on_failure == "giveUp" and point != "beforeDrain":
        yield ".onFailure: 'giveUp' is only valid for beforeDrain, since later the pods are gone; set proceed or wait"


def _url_problems(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        yield f".http.url: {url!r}: invalid URL, expected e.g. https://hooks.example.com/drain"
        return
    if parts.scheme not in ("http", "https") or not named:
        yield f".http.url: {url!r}: invalid URL, expected e.g. https://hooks.example.com/drain"
    elif parts.username is not None or parts.password is not None:
        # The message must not contain the value, which is a secret.
        yield ".http.url: contains a user name or password, which histories would record; remove it, or use a Job"


def _template_problems(template: dict[str, Any]) -> Iterator[str]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(containers, list) or not containers:
        yield ".job.template.spec.containers: missing, expected at least one with name and image"
        return
    restart = spec.get("restartPolicy", "Never")
    if restart not in ("Never", "OnFailure"):
        yield f".job.template.spec.restartPolicy: {restart!r}: invalid for a Job, expected Never or OnFailure"
    size = len(json.dumps(template, separators=(",", ":")))
    if size > MAX_TEMPLATE_BYTES:
        problem = f"{size} bytes, expected at most {MAX_TEMPLATE_BYTES}"
        yield f".job.template: {problem}; put scripts into the image or a ConfigMap"
