"""What nodes heard from AWS, as their workflows' memos keep it, and what became of the queue's messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from cli.lives import Lives, NodeLife, merge
from model.event_records import MEMO, EventRecord, Tally
from workflows import ids

READS: Final = "read_queue"
"""The activity whose heartbeat counts."""
_MANY: Final = TypeAdapter(tuple[EventRecord, ...])


@dataclass(frozen=True)
class Heard:
    life: NodeLife
    records: tuple[EventRecord, ...]


class Hearing:
    def __init__(self, client: Client, cluster: str) -> None:
        self._client, self._cluster = client, cluster

    async def lives(self, after: datetime) -> list[Heard]:
        """Nodes that heard something: those that live, and those that ended since then. One list, whatever their
        number."""
        lately = f"(ExecutionStatus = 'Running' OR CloseTime >= '{after.astimezone(UTC).isoformat()}')"
        found = await Lives(self._client, self._cluster).executions(lately)
        memos = {one.id: one for one in found if MEMO in one.raw_info.memo.fields}
        heard = [one for one in merge(found) if one.workflow_id in memos]
        return [Heard(life, await _records(memos[life.workflow_id])) for life in heard]

    async def knows(self, name: str) -> bool:
        """Whether a node of that name lives, or lived."""
        return any(life.is_called(name) for life in await Lives(self._client, self._cluster).all())

    async def tally(self) -> Tally | None:
        """None where no queue is read at present."""
        handle = self._client.get_workflow_handle(ids.interruption(self._cluster))
        try:
            description = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        for activity in description.raw_description.pending_activities:
            if activity.activity_type.name == READS and activity.heartbeat_details.payloads:
                told = await self._client.data_converter.decode(activity.heartbeat_details.payloads)
                return _tally(told[0])
        return None


async def _records(execution: WorkflowExecution) -> tuple[EventRecord, ...]:
    """What a newer version wrote, and this one cannot read, is left out."""
    try:
        memo: Mapping[str, object] = await execution.memo()
        return _MANY.validate_python(memo[MEMO])
    except ValidationError:
        return ()


def _tally(told: object) -> Tally | None:
    try:
        return Tally.model_validate(told)
    except ValidationError:
        return None
