"""What hooks are called and told, and how it is said of them what they do and how they went. Pure."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.hooks import NAMESPACE, AwsEvent, CallAnswer, HookRun, HookSubject, Outcome, Point
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.interruption.decision import drained_for, live
from tenure.policy.interruption.timing import moment


def key_of(uid: str, point: Point, name: str, number: int) -> str:
    """The same for each try of one run; of the first run by any workflow of this NodeClaim."""
    return "-".join((uid, point, name, *((str(number),) if number > 1 else ())))


def job_name(key: str, hook: str) -> str:
    return f"{hook}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def label(text: str) -> str:
    """As the value of a label; names of nodes may be longer than those."""
    return re.sub(r"[^A-Za-z0-9]+$", "", re.sub(r"[^-A-Za-z0-9_.]", "-", text)[:63])


def title(point: Point, hook: Hook, job: str) -> str:
    """Which one, and what it does: without what follows a `?`, which may be for the service alone."""
    if hook.job is not None:
        return f"hook {point}/{hook.name}: Job {hook.job.namespace or NAMESPACE}/{job}"
    parts = urlsplit(hook.http.url if hook.http else "")
    return f"hook {point}/{hook.name}: POST {parts.netloc.rpartition('@')[2]}{parts.path}"


def words(run: HookRun, then: str = "") -> str:
    """How it went, in a line; `then`: what comes next."""
    said = {"failed": "failed", "timed out": "took too long", "skipped": "was skipped", "succeeded": "succeeded"}
    how = said[run.outcome] if run.outcome else f"runs since {moment(run.since)}"
    return f"hook {run.point}/{run.name} {how}" + (f", {then}" if then else "") + (f": {run.why}" if run.why else "")


def lines(state: ClaimState) -> tuple[str, ...]:
    """All of them, in the order in which they ended, for the details of a workflow."""
    return tuple(words(one) for one in state.hooks.runs if not one.past)


def is_at_one(state: ClaimState) -> bool:
    """A hook is what the node waits for."""
    return state.blocked_by.startswith("hook ")


def has_failed(state: ClaimState) -> bool:
    """It waits for a hook that failed, and is tried again."""
    over = [one for one in state.hooks.runs if one.outcome is not None and not one.past]
    return any(state.blocked_by.startswith(f"hook {one.point}/{one.name} ") for one in over)


def subject(state: ClaimState, point: Point, hook: Hook) -> HookSubject:
    event = drained_for(state) or next(iter(live(state)), None)
    provider = state.launched.provider_id if state.launched else ""
    return HookSubject(
        cluster=state.identity.cluster,
        pool=state.identity.pool,
        claim=state.identity.name,
        node=state.node_name,
        provider_id=provider,
        instance_id=provider.rpartition("/")[2],
        point=point,
        hook=hook.name,
        reason=state.disruption,
        event=AwsEvent(kind=event.kind, code=event.code, starts=event.starts) if event else None,
    )


def body(about: HookSubject) -> dict[str, Any]:
    """What a service is told."""
    event = about.event
    starts = {"starts": moment(event.starts)} if event and event.starts else {}
    told = {"kind": event.kind, "code": event.code, **starts} if event else None
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
        **({"event": told} if told else {}),
    }


def env(about: HookSubject) -> dict[str, str]:
    """The same for the containers of a Job."""
    return dict(_flat(body(about), "TENURE"))


def _flat(said: dict[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for key, value in said.items():
        name = f"{above}_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', key).upper()}"
        if isinstance(value, dict):
            yield from _flat(value, name)
        else:
            yield name, str(value)


def judged(answer: CallAnswer) -> tuple[Outcome | None, str]:
    """What a service's answer means; no outcome: ask again. 202 with Retry-After is one that is still at it."""
    said = f"answers {answer.status}" + (f" {answer.text}" if answer.text else "")
    if answer.status == 202 and answer.retry_after is not None:
        return None, "is still at it"
    if 200 <= answer.status < 300:
        return "succeeded", ""
    if answer.status in (408, 425, 429) or answer.status >= 500:
        return None, said
    if 300 <= answer.status < 400:
        return "failed", f"{said}: write the address that it leads to"
    return "failed", said
