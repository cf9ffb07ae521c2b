"""Promise 1 over a month, on the time-skipping server with the ports faked. `TENURE_FAULTS` says how many go wrong."""

import os
from datetime import datetime, timedelta

import pytest

from model.durations import parse_duration
from model.lifecycle import ClaimState, Phase
from tests.fakes.skipping import time_skipping
from tests.fakes.worker import World
from tests.scenarios.month import Month, Place
from tests.workflows.eventually import state_of

FAULTS = int(os.environ.get("TENURE_FAULTS", "100"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
LASTS = timedelta(days=int(os.environ.get("TENURE_DAYS", "1")))
PLACES = 6
FAULTS_A_STEP = 20
BOUND = timedelta(minutes=5)
"""Beyond consolidateAfter: a permit, retries, and the next look at a budget."""


@pytest.mark.row("000-i")
@pytest.mark.timeout(60 + FAULTS)
async def test_in_a_month_of_faults_no_node_is_empty_for_long_without_a_reason_that_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("draining.LOOK_FIRST", 0.01), ("draining.LOOK_SLOWEST", 0.05), ("draining.SETTLED", 0.1)):
        monkeypatch.setattr(f"activities.{name}", value)
    monkeypatch.setattr("activities.drain_stay.MIN_DRAIN", 0.0)
    async with time_skipping() as skipping:
        month = Month(World(skipping.client), skipping, seed=SEED, places=PLACES)
        async with month.playing():
            silent = await _played(month)
        assert not silent, silent
        assert month.faults >= FAULTS


async def _played(month: Month) -> list[str]:
    """What broke the promise in the month."""
    steps = max(1, FAULTS // FAULTS_A_STEP)
    ends = await month.now() + LASTS
    silent: list[str] = []
    for number in range(steps):
        await month.step(due=(number + 1) * FAULTS_A_STEP)
        left = (ends - await month.now()) / (steps - number)
        await month.passes(max(left * month.dice.uniform(0.2, 1.8), timedelta(0)))
        await month.settle()
        silent += [why for place in month.places if (why := await _silent(month, place))]
    assert sum(place.lives for place in month.places) > steps
    return silent


async def _silent(month: Month, place: Place) -> str:
    """Why this place breaks the promise; empty where it keeps it."""
    claim, now = month.fake.claims.found.get(place.name), await month.now()
    node = month.node(place)
    if claim is None or node is None or place.handle is None or place.empty_since is None:
        return ""
    if "deletionTimestamp" in claim["metadata"] or node.deleting:
        return f"{place.name} is going since long" if node.deleting and now - place.empty_since > 4 * BOUND else ""
    after = parse_duration(month.after) or timedelta(0)
    if now - place.empty_since < after + BOUND:
        return ""
    state = await state_of(place.handle)
    if _is_current(state, month, place, now):
        return ""
    return f"{place.name}, {state.phase}, empty for {now - place.empty_since}: {state.blocked_by!r}, {_world(month)}"


def _is_current(state: ClaimState, month: Month, place: Place, now: datetime) -> bool:
    said = state.blocked_by
    node = month.node(place)
    if state.phase is not Phase.READY:
        unready = "NodeNotReady" in said and node is not None and not node.ready
        return unready or (state.deadline is not None and now < state.deadline)
    causes = {
        "paused": bool(month.paused and month.paused > now) or bool(place.paused and place.paused > now),
        "budget": month.budget != "100%",
        "do-not-disrupt": place.held,
        "not empty": bool(node and month.fake.pods.by_node.get(node.name)),
        "consolidateAfter": month.after == "Never",
    }
    return any(word in said and holds for word, holds in causes.items())


def _world(month: Month) -> str:
    return f"budget {month.budget}, after {month.after}, paused {month.paused}, {month.faults} faults of {month.due}"
