"""Hooks of a node's end: a Job, a call that is run again after it failed, and one that gives a drain up."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.hooks import CallAnswer, JobFact
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, state_of
from tests.support.workflows.lives import BUSY, delete, pool, ready

Runs = dict[str, WorkflowHandle[Any, Any]]
REFUSED = CallAnswer(status=409)
JOB = {"name": "snapshot", "job": {"template": {"spec": {"containers": [{"name": "main", "image": "snapshot:1"}]}}}}
CALL = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}


def _rules(**hooks: Any) -> dict[str, Any]:
    return {"rules": LifecycleRules.model_validate({"hooks": hooks}).to_object()}


async def nodeclaim_hooks(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    fake.jobs.ends, fake.calls.answers = JobFact(key="", outcome="succeeded"), [REFUSED]
    told = _rules(beforeDrain=[JOB], afterDrain=[CALL | {"onFailure": "wait"}], beforeTerminate=[CALL])
    await fake.see(handle, **BUSY, **told)
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True, **told)
    await eventually(lambda: blocked(handle, "hook afterDrain/warn failed"))
    await skipping.sleep(timedelta(minutes=2))
    await handle.result()
    return {"": handle}


async def nodeclaim_hook_gives_up(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.calls.answers = [REFUSED]
    now = await skipping.get_current_time()
    told = _rules(beforeDrain=[CALL | {"onFailure": "giveUp"}])
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/0s", **told)

    async def given_up() -> bool:
        return (await state_of(handle)).gave_up is not None

    await eventually(given_up)
    await delete(fake, handle)
    await handle.result()
    return {"": handle}
