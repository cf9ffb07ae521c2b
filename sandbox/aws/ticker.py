"""Lets states change in time even when nobody asks, for those who wait for a change and for the messages that follow
one.
"""

from __future__ import annotations

import threading

from sandbox.aws.ec2.world import World

IDLE_SECONDS = 5.0


def start_ticker(world: World) -> threading.Thread:
    """A daemon thread that sleeps until the next transition is due."""
    thread = threading.Thread(target=_tick, args=(world,), name=f"ticker-{world.region}", daemon=True)
    thread.start()
    return thread


def _tick(world: World) -> None:
    with world.lock:
        while True:
            world.settle()
            due = world.next_due()
            world.moved.wait(IDLE_SECONDS if due is None else world.clock.seconds_until(due, IDLE_SECONDS))
