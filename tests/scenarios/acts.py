"""The acts that the rows play in, with phase deadlines short enough to be lived through, and long enough for the nodes
of dozens of rows to come up together on a busy machine."""

from tests.support.product.acts import Act
from tests.support.product.product import Product

GRACE = 60
"""Seconds for which a NotReady node is expected back (NOT_READY_GRACE): several times as long as what some rows do to a
node, and look at, before it is over."""


async def kill(product: Product) -> None:
    await product.kill()


async def go_on(product: Product) -> None:
    await product.go_on()


CALM = Act(
    "calm",
    settings={
        "LAUNCH_TIMEOUT": "60s",
        "REGISTRATION_TIMEOUT": "90s",
        "INITIALIZATION_TIMEOUT": "60s",
        "NOT_READY_GRACE": f"{GRACE}s",
    },
    patient={
        "LAUNCH_TIMEOUT": "60s",
        "REGISTRATION_TIMEOUT": "90s",
        "INITIALIZATION_TIMEOUT": "75s",
        "NOT_READY_GRACE": f"{GRACE}s",
    },
)
"""Nothing befalls the worker, unless the run is told to kill it once."""

EMPTYING = Act("emptying", settings=CALM.settings, patient=CALM.patient)
"""Likewise, for the rows of promise 1: their bounds are short, and dozens of other scenarios would use them up."""

EVENTS = Act(
    "events",
    settings={**CALM.settings, "INTERRUPTION_QUEUE": "demo"},
    patient={**CALM.patient, "INTERRUPTION_QUEUE": "demo"},
)
"""Likewise, and AWS's events are read. Apart from the others, so that each has its time."""


async def rest(product: Product) -> None:
    await product.rest()


KILLED = Act("killed", between=(kill, go_on))
"""The worker is killed at the first `yield`, and one like it is started at the second."""

AWAY = Act("away", between=(rest, go_on))
"""The worker is stopped at the first `yield`, as for a new version of it, and one like it is started at the second."""
