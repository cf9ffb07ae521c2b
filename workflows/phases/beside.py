"""What is written of a node beside the phase that it is in: its drift, its absences, that it is overdue.

Each is a task for as long as the run lasts (`nodeclaim.py`), and has no event while there is nothing new to say.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from model.lifecycle import ClaimState
from workflows.life import Life

AGAIN_IN = timedelta(minutes=5)
"""After a fault that no retry helps."""
LAST_WORDS = timedelta(minutes=2)
"""A try that is lost with its worker comes again after 45 s."""


async def whenever(
    life: Life, is_news: Callable[[ClaimState], bool], write: Callable[[Life], Awaitable[None]], *, about: str
) -> None:
    """Write whenever there is news; what was written has to make it none. The run does not roll over meanwhile."""
    while True:
        await workflow.wait_condition(lambda: is_news(life.state))
        life.show()
        life.telling += 1
        written = await _is_written(life, write)
        life.telling -= 1
        if not written:
            await workflow.sleep(AGAIN_IN, summary=f"before writing of {about} again")


async def last_words(life: Life) -> None:
    """What is just being written comes to its end, before the life does."""
    if life.telling:
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: not life.telling, timeout=LAST_WORDS, timeout_summary="last words")


async def _is_written(life: Life, write: Callable[[Life], Awaitable[None]]) -> bool:
    try:
        await write(life)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    return True
