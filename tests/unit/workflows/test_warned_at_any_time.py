"""A warning comes while a node's life waits for something else: it acts at once, and waits for no look."""

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_time, state_of
from tests.support.workflows.lives import BUSY, emptied, pool, ready
from tests.support.workflows.noticed import notice, ready_under, rules


async def acted(fake: World) -> bool:
    return fake.pods.evicted == ["web"]


async def test_a_warning_is_acted_upon_also_while_the_node_is_looked_at_anew(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """After so long it looks every ten minutes, and no time passes from then on."""
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.pods.place("node-a", "web")
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "not empty: default/web"), seconds=10)
    await skipping.sleep(timedelta(minutes=25))
    await notice(fake, skipping, handle, "spotInterruption")
    await eventually(lambda: acted(fake))


async def test_a_warning_is_acted_upon_also_while_the_node_is_lost(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle)
    await eventually(lambda: blocked(handle, "NodeNotFound"))
    await notice(fake, skipping, handle, "spotInterruption")
    await eventually(lambda: left(handle))
    assert (await handle.result()).reason == "spot_interrupted"


STATEFUL = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}


async def held_for_a_person(fake: World, skipping: WorkflowEnvironment) -> Handle:
    """A drain that AWS recommended and that holds a pod."""
    handle = await ready_under(fake, skipping, rebalanceRecommendation={"action": "drain"}, workloads=[STATEFUL])
    fake.pods.place("node-a", "db", labels={"state": "kept"})
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    await eventually(lambda: blocked(handle, "default/db: rebalanceRecommendation"))
    assert fake.pods.evicted == ["web"]
    return handle


async def test_a_warning_frees_the_pods_that_a_drain_holds_for_a_person(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await held_for_a_person(fake, skipping)
    await notice(fake, skipping, handle, "spotInterruption")
    assert (await handle.result()).reason == "rebalance_recommendation"
    assert fake.pods.evicted == ["web", "db"]
    assert fake.events.reasons("a").count("TerminatingOnInterruption") == 2


async def test_a_check_that_fails_in_a_drain_ends_the_node_whatever_runs_there(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await held_for_a_person(fake, skipping)
    fake.pods.blocked["db"] = "a budget"
    await notice(fake, skipping, handle, "instanceStatus", source="status")
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["db"]


async def test_a_failing_check_ends_the_node_also_where_that_cannot_be_written_at_once(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await held_for_a_person(fake, skipping)
    fake.pods.blocked["db"] = "a budget"
    fake.claims.faults["patch"] = [BadInput("denied by a webhook")]
    await notice(fake, skipping, handle, "instanceStatus", source="status")
    await in_time(skipping, lambda: forced_out(fake), seconds=5)
    await handle.result()


async def forced_out(fake: World) -> bool:
    return [name for name, _ in fake.pods.forced] == ["db"]


async def test_a_warning_takes_do_not_disrupt_pods_of_a_drain_where_the_policy_says_so(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    said = {"spotInterruption": {"doNotDisrupt": "override"}}
    handle = await ready_under(fake, skipping, **said)
    fake.pods.place("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True, **rules(**said))
    await eventually(lambda: blocked(handle, "default/kept"))
    await notice(fake, skipping, handle, "spotInterruption")
    await handle.result()
    assert fake.pods.evicted == ["web", "kept"]


async def left(handle: Handle) -> bool:
    return (await state_of(handle)).phase is not Phase.READY


async def test_what_is_said_of_a_warning_is_said_also_when_the_node_goes_quicker(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping)
    publish, tries = fake.events.publish, 0

    async def busy(*, name: str, reason: str, **fields: Any) -> None:
        """For as long as there is a NodeClaim."""
        nonlocal tries
        if reason == "SpotInterrupted" and "a" in fake.claims.found:
            tries += 1
            raise TryLater("too many requests")
        await publish(name=name, reason=reason, **fields)

    fake.events.publish = busy  # type: ignore[method-assign]
    await notice(fake, skipping, handle, "spotInterruption")
    await handle.result()
    assert tries
    assert {"SpotInterrupted", "TerminatingOnInterruption"} <= set(fake.events.reasons("a"))
