"""Recorded: what AWS said of a node, and what was done, stands in its workflow's memo. Beside the phases.

`policy/event_records.py` has the words, `tenure events` shows them. A node that AWS says nothing of has no event of
this.
"""

from pydantic import TypeAdapter
from temporalio import workflow

from model.event_records import MEMO, EventRecord
from policy.event_records import records_of
from workflows.life import Life
from workflows.phases.interrupted import leaves

_MANY = TypeAdapter(tuple[EventRecord, ...])


async def record_events(life: Life) -> None:
    """For as long as the run lasts: whenever something else is so, keep it. One event each time; a mark that the code
    of before replays by would be two more, for each node of a storm. A run that goes on from another one finds its
    memo, or writes it anew."""
    if not life.state.keeps_records:
        return
    await workflow.wait_condition(lambda: bool(life.state.notices))
    kept = _MANY.validate_python(workflow.memo_value(MEMO, []))

    def found() -> tuple[EventRecord, ...]:
        return records_of(life.state, kept, workflow.now())

    def is_news() -> bool:
        """One that is about to go is kept once it does."""
        return found() != kept and not leaves(life.state)

    while True:
        await workflow.wait_condition(is_news)
        kept = found()
        workflow.upsert_memo({MEMO: _MANY.dump_python(kept, mode="json", exclude_defaults=True)})
