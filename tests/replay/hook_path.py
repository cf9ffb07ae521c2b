"""Paths of hooks: a Job, a failed call that is retried, and a failed call that cancels the drain."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.hooks import CallResult, JobFact
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import is_blocked_by, query_state, wait_until
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, ready_nodeclaim, start_nodepool

Runs = dict[str, WorkflowHandle[Any, Any]]
REJECTED = CallResult(status=409)
JOB = {"name": "snapshot", "job": {"template": {"spec": {"containers": [{"name": "main", "image": "snapshot:1"}]}}}}
CALL = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}


def _hook_rules(**hooks: Any) -> dict[str, Any]:
    return {"rules": LifecycleRules.model_validate({"hooks": hooks}).to_object()}


async def nodeclaim_hooks(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    fake.jobs.next_outcome, fake.calls.responses = JobFact(key="", outcome="succeeded"), [REJECTED]
    hook_rules = _hook_rules(beforeDrain=[JOB], afterDrain=[CALL | {"onFailure": "wait"}], beforeTerminate=[CALL])
    await fake.signal_observed(handle, **BUSY, **hook_rules)
    await delete_nodeclaim(fake, handle, **hook_rules)
    await wait_until(lambda: is_blocked_by(handle, "hook afterDrain/warn failed"))
    await fake.sleep(minutes=2)
    await handle.result()
    return {"": handle}


async def nodeclaim_hook_cancels_drain(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.calls.responses = [REJECTED]
    now = await fake.now()
    hook_rules = _hook_rules(beforeDrain=[CALL | {"onFailure": "giveUp"}])
    await fake.signal_observed(handle, **BUSY, empty=True, empty_since=now, consolidation="WhenEmpty/0s", **hook_rules)

    async def is_cancelled() -> bool:
        return (await query_state(handle)).cancelled_drain is not None

    await wait_until(is_cancelled)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}
