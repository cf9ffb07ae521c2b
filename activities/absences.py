"""When a node was away is written to its NodeClaim, where planning reads it and where it outlives its workflow."""

from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.ports import Claims
from activities.reading import claim_of
from model.absence import merged, read, written
from model.labels import AWAY
from model.steps import AbsencesTold


class AbsenceActivities:
    def __init__(self, *, claims: Claims) -> None:
        self._claims = claims

    @activity.defn
    @faults_mapped
    async def record_absences(self, told: AbsencesTold) -> None:
        """What is on record from before is kept: a workflow that was rebuilt does not know it."""
        ref = told.claim
        claim = await claim_of(self._claims, ref.name, ref.uid)
        if claim is None:
            return
        record = merged(read(claim.metadata.annotations.get(AWAY, "")), told.absences)
        await self._claims.patch(ref.name, ref.uid, annotations={AWAY: written(record)}, now=datetime.now(UTC))
