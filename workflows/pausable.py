"""The brake: pause and resume of a cluster, a NodePool or a node, in every form that a person can ask for them.

A workflow that can be paused takes `Braked` as its base, which has the updates and the signals, and makes a `Brake` in
`__init__`; its state has `pause` and `mirror`. While it runs, `Brake.keep` is a task beside it: it writes the pause
onto the object as an annotation, says so in an event, and ends the pause when its time is over. What a person changes
in the annotation comes back by the watch, to `Brake.see`.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.annotations import PauseActivities
from tenure.model.operator_requests import Mirror, MirrorAsked, PauseSeen
from tenure.model.signals import Pause, Resume, Verdict
from tenure.policy.lifecycle.pauses import NEVER, ends, found_in, holds, problem_of, tidied, words, write_pause
from workflows import search_attributes
from workflows.activity_options import PATCH, named

ECHOING = timedelta(minutes=1)
"""For so long what the watch shows may be what the workflow itself wrote before its last word."""
AGAIN_IN = timedelta(minutes=1)
"""After a fault that no retry helps."""


class Pausable(Protocol):
    """The state of a workflow that can be paused."""

    @property
    def pause(self) -> Pause | None: ...

    @property
    def mirror(self) -> Mirror: ...


class Brake:
    def __init__(
        self,
        target: Callable[[], MirrorAsked],
        state: Callable[[], Pausable],
        change: Callable[..., None],
        *,
        changed: Callable[[], None] = lambda: None,
        began: Callable[[str], Awaitable[None]] | None = None,
        note: Callable[[], str] = lambda: "",
        shown: bool = True,
    ) -> None:
        """`target`: the object that carries the annotation. `changed` is called at once whenever the pause is another
        one; `began`, with the reason in words, before a pause is written down. `note` is added to the answer of a
        pause. `shown`: TenurePaused is set here."""
        self._target, self._state, self._change = target, state, change
        self._changed, self._began, self._note, self._shown = changed, began, note, shown
        self._writing = False
        self._is_marked: bool | None = None

    @property
    def busy(self) -> bool:
        """Something is being written: no moment to roll over."""
        return self._writing

    @property
    def name(self) -> str:
        target = self._target()
        return f"{target.kind} {target.name}".strip() if target.kind != "Cluster" else "the cluster"

    # --- what a person says ---

    def check(self, pause: Pause) -> None:
        """Raises ValueError for what makes no sense: field, value, what to write."""
        if wrong := problem_of(pause, workflow.now()):
            raise ValueError(wrong)

    def set(self, pause: Pause) -> Verdict:
        """What makes no sense is refused before, where there is somebody to tell; else it is mended where it can be,
        since whoever sent it wanted that nothing goes."""
        meant = tidied(pause)
        if wrong := problem_of(meant, workflow.now()):
            return Verdict(accepted=False, message=wrong)
        self._take(meant)
        return Verdict(message=f"{self.name} is paused until {meant.until.isoformat()}. {self._note()}".strip())

    def release(self, resume: Resume) -> Verdict:
        before = self._state().pause
        self._take(None)
        return Verdict(message=f"{self.name} goes on" if before else f"{self.name} was not paused")

    def see(self, text: str) -> None:
        """The annotation as the watch sees it. What the workflow wrote itself is no news, however late it is seen."""
        mirror = self._state().mirror
        if text == mirror.seen:
            return
        own = mirror.echoes if mirror.written and workflow.now() - mirror.written < ECHOING else ()
        if text == mirror.stands or text in own:
            left = own[own.index(text) + 1 :] if text in own else ()
            self._change(mirror=mirror.model_copy(update={"seen": text, "echoes": left}))
            return
        self._change(mirror=mirror.model_copy(update={"stands": text, "seen": text, "echoes": ()}))
        self._take(found_in(text))

    def _take(self, pause: Pause | None) -> None:
        if pause != self._state().pause:
            self._change(pause=pause)
            self._changed()

    # --- what is asked ---

    def words(self, now: datetime) -> str:
        """Who holds it, until when and why; empty while nobody does."""
        pause = self._state().pause
        return f"{self.name} {words(pause)}" if pause and holds(pause, now) else ""

    # --- what is written ---

    async def keep(self) -> None:
        """For as long as the run lasts. A life that nobody pauses has no event of this."""
        await workflow.wait_condition(self._has_news)
        self._tidy()
        while True:
            self._end()
            if self._untold():
                if not await self._is_written():
                    await workflow.sleep(AGAIN_IN, summary="before writing of the pause again")
                continue
            await self._news()

    def _tidy(self) -> None:
        """A pause of an earlier version, or of a state from elsewhere, may not read as it is written."""
        pause = self._state().pause
        if pause is not None and pause.until != NEVER:
            self._change(pause=tidied(pause))

    def _has_news(self) -> bool:
        return self._state().pause is not None or self._untold()

    def _untold(self) -> bool:
        state = self._state()
        return state.pause != state.mirror.told or self._to_write() is not None

    def _to_write(self) -> str | None:
        """None where the annotation says what it should."""
        state = self._state()
        return None if found_in(state.mirror.stands) == state.pause else write_pause(state.pause)

    def _end(self) -> None:
        """Its time is over: what it held goes on by itself."""
        pause = self._state().pause
        if pause is not None and not holds(pause, workflow.now()):
            self._take(None)

    async def _news(self) -> None:
        until = ends(self._state().pause)
        timeout = max(until - workflow.now(), timedelta(milliseconds=1)) if until else None
        known = self._state().pause
        try:
            await workflow.wait_condition(
                lambda: self._state().pause != known or self._untold(),
                timeout=timeout,
                timeout_summary="the end of the pause" if timeout else None,
            )
        except TimeoutError:
            return

    async def _is_written(self) -> bool:
        self._writing = True
        try:
            await self._write()
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return False
        finally:
            self._writing = False
        return True

    async def _write(self) -> None:
        pause, before = self._state().pause, self._state().mirror
        self._mark(pause is not None)
        if pause is not None and pause != before.told and self._began is not None:
            await self._began(f"{self.name} {words(pause)}")
        text = self._to_write()
        asked = self._asked(pause, before, text)
        if text is not None:
            own = (*self._state().mirror.echoes, text)
            self._note_mirror(stands=text, echoes=own, written=workflow.now())
        try:
            await workflow.execute_activity_method(
                PauseActivities.mirror_pause, asked, **named(PATCH, "write the pause down" if pause else "resume")
            )
        except ActivityError:
            # What was not written is as it was, also where the watch has not shown that yet; or as a person made it.
            known = self._state().mirror
            self._note_mirror(stands=before.stands if known.stands == text else known.stands, echoes=())
            raise
        self._note_mirror(told=pause)

    def _asked(self, pause: Pause | None, before: Mirror, text: str | None) -> MirrorAsked:
        """The annotation of a pause whose time is over is taken off only as it is known: somebody may prolong it."""
        said = {"write": text is not None, "text": text or ""}
        if pause is not None:
            event = "DisruptionPaused" if pause != before.told else ""
            told = {"event": event, "message": f"{self.name} {words(pause)}", "warning": pause.until == NEVER}
            return self._target().model_copy(update={**said, **told})
        ended = before.told or found_in(before.stands)
        over = ended is not None and not holds(ended, workflow.now())
        why = f": the pause by {ended.by} is over since {ended.until.isoformat()}" if ended and over else ""
        told = {"event": "DisruptionResumed", "message": f"{self.name} goes on{why}"}
        return self._target().model_copy(update={**said, **told, "only": before.stands if over else ""})

    def _note_mirror(self, **fields: object) -> None:
        self._change(mirror=self._state().mirror.model_copy(update=fields))

    def _mark(self, paused: bool) -> None:
        if self._shown and self._is_marked is not paused:
            self._is_marked = paused
            update = search_attributes.PAUSED.value_set(True) if paused else search_attributes.PAUSED.value_unset()
            workflow.upsert_search_attributes([update])

    def see_numbered(self, seen: PauseSeen) -> None:
        """The same for one that comes by itself; older observations are dropped."""
        if seen.number > self._state().mirror.number:
            self._note_mirror(number=seen.number)
            self.see(seen.text)


class Braked:
    """Updates are answered, and refuse what makes no sense; signals work in bulk, and while no worker is up."""

    _brake: Brake

    @workflow.update(
        description="Hold voluntary disruption: "
        '{"by": "ann", "reason": "training run", "until": "2026-06-01T18:00:00Z"}'
    )
    def pause(self, pause: Pause) -> Verdict:
        """Hold voluntary disruption until a moment."""
        return self._brake.set(pause)

    @pause.validator
    def _check_pause(self, pause: Pause) -> None:
        self._brake.check(pause)

    @workflow.signal(description="pause without an answer: works in bulk, and waits for a worker")
    def pause_disruption(self, pause: Pause) -> None:
        """The same as `pause`."""
        self._brake.set(pause)

    @workflow.update(description='Let voluntary disruption go on: {"by": "ann"}')
    def resume(self, resume: Resume) -> Verdict:
        """Let voluntary disruption go on."""
        return self._brake.release(resume)

    @workflow.signal(description="resume without an answer: works in bulk, and waits for a worker")
    def resume_disruption(self, resume: Resume) -> None:
        """The same as `resume`."""
        self._brake.release(resume)


class ClusterBraked(Braked):
    """The same for the Cluster workflow. Its pause reaches NodePools by the watch, as the annotation of the worker's
    namespace: each of them holds its nodes and calls its permits back, whatever becomes of the Cluster workflow.

    `Brake(lambda: MirrorAsked(kind="Cluster"), lambda: self._state, self._change, changed=...)`, with a task for
    `Brake.keep`; `Brake.words` says whether nothing is to be begun, and why."""

    @workflow.signal(description="From the watch: the annotation on the worker's namespace")
    def pause_seen(self, seen: PauseSeen) -> None:
        """The annotation, as the watch sees it."""
        self._brake.see_numbered(seen)
