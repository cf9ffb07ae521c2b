"""NodeClass: resolves an EC2NodeClass, keeps it fresh, and lets it go once no NodeClaim holds it."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclass import NodeClassActivities
from tenure.model.nodeclaim_requests import NodeClassAsked, NodeClassResolved
from tenure.model.observations import NodeClassSeen
from tenure.model.workflow_states import NodeClassState
from workflows import current_details
from workflows.activity_options import RESOLVE, named, roll_due

FRESH_FOR = timedelta(minutes=5)
"""Between looks at AWS while all is well (reference 7.1)."""
TRY_AGAIN_IN = timedelta(minutes=1)
"""While something is not ready or AWS does not answer."""
STUMBLE = timedelta(seconds=5)
"""After the first look that got no answer; twice as long after each further one, up to a minute."""
PATIENCE = 6
"""Looks for which what will be known very soon is looked at as soon as was asked for."""
HELD_FOR = timedelta(minutes=10)
"""Between looks at a class that NodeClaims hold: their going wakes it."""


@workflow.defn
class NodeClassWorkflow:
    @workflow.init
    def __init__(self, state: NodeClassState) -> None:
        self._state = state
        self._held = False

    @workflow.run
    async def run(self, state: NodeClassState) -> None:
        while self._state.seen.exists:
            known = self._state.seen
            if self._state.seen.deleting:
                if await self._remove():
                    return
            else:
                await self._resolve()
            self._describe()
            await self._sleep(known)
            if roll_due():
                workflow.continue_as_new(self._state)

    @workflow.signal(description="From the watch: the EC2NodeClass as it is now")
    def seen(self, seen: NodeClassSeen) -> None:
        if seen.number > self._state.seen.number:
            self._change(seen=seen)

    @workflow.query(description="All that the workflow knows")
    def state(self) -> NodeClassState:
        return self._state

    async def _resolve(self) -> None:
        name = self._state.name
        asked = NodeClassAsked(name=name, restamp=bool(self._state.seen.stamps))
        try:
            answer = await workflow.execute_activity_method(
                NodeClassActivities.resolve_node_class, asked, **named(RESOLVE, f"resolve {name}")
            )
        except ActivityError as error:
            told = str(error.cause or error)[:300]
            answer = NodeClassResolved(ready="Unknown", message=told, unanswered=told)
        if not answer.exists:
            self._change(seen=self._state.seen.model_copy(update={"exists": False}))
        self._change(
            resolved_generation=answer.generation,
            ready=answer.ready,
            message=answer.message,
            again_in=answer.again_in,
        )
        self._note(answer.unanswered)

    async def _remove(self) -> bool:
        try:
            done: bool = await workflow.execute_activity_method(
                NodeClassActivities.remove_node_class,
                NodeClassAsked(name=self._state.name),
                **named(RESOLVE, "clean up and let go"),
            )
        except ActivityError as error:
            told = str(error.cause or error)[:300]
            self._change(message=told)
            self._note(told)
            self._held = False
            return False
        self._held = not done
        self._note("")
        self._change(message="" if done else f"waits for {self._state.seen.claims} NodeClaims")
        return done

    def _note(self, unanswered: str) -> None:
        """How long the outside has not answered: in the details for all who wonder."""
        if not unanswered:
            self._change(stumbles=0, stumbling_since=None, stumbles_over="")
            return
        since = self._state.stumbling_since or workflow.now()
        self._change(stumbles=self._state.stumbles + 1, stumbling_since=since, stumbles_over=unanswered)

    async def _sleep(self, known: NodeClassSeen) -> None:
        """Until the class or the number of its NodeClaims changes in a way that matters, or it is due."""
        try:
            await workflow.wait_condition(
                lambda: self._matters(known),
                timeout=self._due(known),
                timeout_summary=f"look at {self._state.name} again",
            )
        except TimeoutError:
            return

    def _due(self, known: NodeClassSeen) -> timedelta:
        state = self._state
        if state.stumbles:
            longest = min(TRY_AGAIN_IN, STUMBLE * (1 << min(state.stumbles - 1, 6)))
            soon = state.again_in if state.stumbles <= PATIENCE else None
            return min(longest, soon or longest)
        if known.deleting:
            return HELD_FOR if self._held else TRY_AGAIN_IN
        usual = FRESH_FOR if state.ready == "True" else TRY_AGAIN_IN
        return min(usual, state.again_in or usual)

    def _matters(self, known: NodeClassSeen) -> bool:
        seen = self._state.seen
        changed = (seen.generation, seen.deleting, seen.exists) != (known.generation, known.deleting, known.exists)
        mislabelled = bool(seen.stamps) and seen.stamps != known.stamps
        return changed or mislabelled or (seen.deleting and seen.claims != known.claims)

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_node_class(self._state))
