"""The wait of a blocked drain between two passes: for a signal of the watch, another input, or a timer."""

from collections.abc import Callable
from datetime import datetime

from tenure.model.disruption.drain import DrainState
from tenure.model.observations import ObservedNodeClaim
from tenure.policy.drain.decision import fallback_after
from workflows.nodeclaim_context import NodeClaimContext
from workflows.timers import MIN_TIMER


async def wait_for_drain_change(
    context: NodeClaimContext,
    observed: ObservedNodeClaim,
    inputs_changed: Callable[[], bool],
    *deadlines: datetime | None,
) -> None:
    """`observed`: before the last pass."""
    drain = context.state.drain or DrainState()
    until = min(at for at in (context.now + fallback_after(drain), *deadlines) if at)
    if not await context.wait(
        lambda: inputs_changed() or context.state.observed.differs_from(observed),
        until=max(until, context.now + MIN_TIMER),
        summary="before the next pass",
    ):
        drain = context.state.drain or drain
        context.update_state(drain=drain.model_copy(update={"idle_passes": drain.idle_passes + 1}))
