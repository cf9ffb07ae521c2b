"""Names and request bodies of hooks, and the text of their progress and outcome."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import instance_id_of
from tenure.model.blockers import HOOK_FAILED, HOOK_RUNNING
from tenure.model.hooks import NAMESPACE, AwsEvent, CallResult, HookPoint, HookRun, HookSubject, Outcome
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.decision import draining_event, live_events
from tenure.policy.interruption.due_times import format_timestamp


def run_key(uid: str, point: HookPoint, name: str, number: int) -> str:
    """Idempotency key: the same for all attempts of a run, also after the NodeClaim's workflow was rebuilt."""
    return "-".join((uid, point, name, *((str(number),) if number > 1 else ())))


def job_name(key: str, hook: str) -> str:
    return f"{hook}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def to_label_value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+$", "", re.sub(r"[^-A-Za-z0-9_.]", "-", text)[:63])


def hook_title(point: HookPoint, hook: Hook, job: str) -> str:
    """Name and action of a hook, without the query string, which may contain a secret."""
    if hook.job is not None:
        return f"hook {point}/{hook.name}: Job {hook.job.namespace or NAMESPACE}/{job}"
    parts = urlsplit(hook.http.url if hook.http else "")
    return f"hook {point}/{hook.name}: POST {parts.netloc.rpartition('@')[2]}{parts.path}"


def describe_run(run: HookRun, then: str = "") -> str:
    outcomes = {"failed": "failed", "timed out": "timed out", "skipped": "was skipped", "succeeded": "succeeded"}
    how = outcomes[run.outcome] if run.outcome else f"has run since {format_timestamp(run.since)}"
    return f"hook {run.point}/{run.name} {how}" + (f", {then}" if then else "") + (f": {run.why}" if run.why else "")


def describe_runs(state: NodeClaimState) -> tuple[str, ...]:
    return tuple(describe_run(one) for one in state.hooks.runs if not one.past)


def is_waiting_for_hook(state: NodeClaimState) -> bool:
    return bool(state.blocked_by) and state.blocked_code in (HOOK_RUNNING, HOOK_FAILED)


def hook_subject(state: NodeClaimState, point: HookPoint, hook: Hook) -> HookSubject:
    event = draining_event(state) or next(iter(live_events(state)), None)
    provider = state.launched.provider_id if state.launched else ""
    return HookSubject(
        cluster=state.identity.cluster,
        pool=state.identity.pool,
        claim=state.identity.name,
        node=state.node_name,
        provider_id=provider,
        instance_id=instance_id_of(provider),
        point=point,
        hook=hook.name,
        reason=state.disruption,
        event=AwsEvent(kind=event.kind, code=event.code, starts=event.starts) if event else None,
    )


def request_body(about: HookSubject) -> dict[str, Any]:
    event = about.event
    starts = {"starts": format_timestamp(event.starts)} if event and event.starts else {}
    event_fields = {"kind": event.kind, "code": event.code, **starts} if event else None
    return {
        "cluster": about.cluster,
        "nodePool": about.pool,
        "nodeClaim": about.claim,
        "node": about.node,
        "providerID": about.provider_id,
        "instanceID": about.instance_id,
        "point": about.point,
        "hook": about.hook,
        "reason": about.reason,
        **({"event": event_fields} if event_fields else {}),
    }


def job_environment(about: HookSubject) -> dict[str, str]:
    return dict(_flatten(request_body(about), "TENURE"))


def _flatten(values: dict[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{above}_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', key).upper()}"
        if isinstance(value, dict):
            yield from _flatten(value, name)
        else:
            yield name, str(value)


def evaluate_response(response: CallResult) -> tuple[Outcome | None, str]:
    """Outcome and message of an HTTP response; None: call again. 202 with Retry-After: the hook still runs."""
    message = f"returned {response.status}" + (f" {response.text}" if response.text else "")
    if response.status == 202 and response.retry_after is not None:
        return None, "still runs"
    if 200 <= response.status < 300:
        return "succeeded", ""
    if response.status in (408, 425, 429) or response.status >= 500:
        return None, message
    if 300 <= response.status < 400:
        return "failed", f"{message}: set the address of the redirect"
    return "failed", message
