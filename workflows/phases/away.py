"""Away: when an initialized node was NotReady, or under a taint that passes, is counted and written to its NodeClaim.

Beside the phase that the node is in. Planning reads it there, so that the grace of a node that comes and goes is used
up and not begun anew; a node that stays has no event of this.
"""

from temporalio import workflow

from activities.absences import AbsenceActivities
from model.absence import Absence, begun, ended, lasting, merged, written
from model.lifecycle import ClaimState, Phase
from model.observations import ClaimSeen
from model.steps import AbsencesTold
from workflows.life import Life
from workflows.options import PATCH, named
from workflows.phases.beside import whenever
from workflows.phases.giving_up import ref

NOT_READY = "NotReady"
_PHASES = (Phase.INITIALIZATION, Phase.READY)


def note_absence(life: Life, seen: ClaimSeen) -> None:
    """Take into the record what the watch sees now, beside what it saw last: `life.state.seen`. A node that is going is
    away for good, which is no flap."""
    known = life.state.absences
    if seen.deleting or not seen.exists or not seen.node_name:
        return
    if seen.away_since and lasting(known) is None:
        life.change(absences=begun(known, seen.away_since), flaps=life.state.flaps + 1)
    elif seen.away_since is None and lasting(known):
        life.change(absences=_ended(life, known, seen))


def recall_absences(life: Life, known: tuple[Absence, ...]) -> None:
    """Of a life that is begun anew: what its NodeClaim says of the time before; and its end, if the node is back."""
    record, seen = merged(known, life.state.absences), life.state.seen
    if seen.node_name and seen.away_since is None and lasting(record):
        record = _ended(life, record, seen)
    life.change(absences=record, absences_told=written(known), flaps=len(record))


def _ended(life: Life, known: tuple[Absence, ...], seen: ClaimSeen) -> tuple[Absence, ...]:
    """The watch may tell late that it is Ready again, and then says since when; that a taint went it sees, or not."""
    came, left = seen.ready_since, lasting(known)
    late = NOT_READY in life.state.seen.away_for and came and left and came > left
    return ended(known, came if late and came else life.now)


async def tell_absences(life: Life) -> None:
    """For as long as the run lasts: whenever there is more to say than was written, write that."""
    await whenever(life, _is_news, _tell, about="absences")


def _is_news(state: ClaimState) -> bool:
    stays = state.phase in _PHASES and state.seen.exists and not state.seen.deleting
    return stays and written(state.absences) != state.absences_told


async def _tell(life: Life) -> None:
    absences = life.state.absences
    asked = AbsencesTold(claim=ref(life), absences=absences)
    summary = "write down that it is away" if lasting(absences) else "write down that it is back"
    await workflow.execute_activity_method(AbsenceActivities.record_absences, asked, **named(PATCH, summary))
    life.change(absences_told=written(absences))
