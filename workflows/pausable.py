"""Pause and resume of voluntary disruption, for a cluster, a NodePool or a NodeClaim.

A workflow inherits the updates and signals from `Pausable` and creates a `PauseController` in `__init__`; its state has
`pause` and `pause_annotation`. The task `PauseController.run` writes the pause to an annotation, publishes an event,
and ends the pause at its time. `PauseController.observe_annotation` receives changes of the annotation from the watch.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.annotations import AnnotationActivities
from tenure.model.operator_requests import ObservedPause, PauseAnnotation, PauseAnnotationRequest
from tenure.model.signals import OperatorRequestResult, Pause, Resume
from tenure.policy.lifecycle.pauses import (
    NEVER,
    describe_pause,
    is_pause_active,
    normalize_pause,
    pause_end,
    pause_from_annotation,
    problem_of,
    write_pause,
)
from workflows import search_attributes
from workflows.activity_options import PATCH, with_summary
from workflows.timers import time_until, wait_at_most

ECHO_WINDOW = timedelta(minutes=1)
"""How long the watch may still report an earlier value that the workflow wrote."""
RETRY_AFTER = timedelta(minutes=1)
"""Delay after an activity failed without further retries."""


class PausableState(Protocol):
    @property
    def pause(self) -> Pause | None: ...

    @property
    def pause_annotation(self) -> PauseAnnotation: ...


class PauseController:
    def __init__(
        self,
        target: Callable[[], PauseAnnotationRequest],
        state: Callable[[], PausableState],
        update_state: Callable[..., None],
        *,
        on_changed: Callable[[], None] = lambda: None,
        on_pause: Callable[[str], Awaitable[None]] | None = None,
        describe_effect: Callable[[], str] = lambda: "",
        sets_attribute: bool = True,
    ) -> None:
        """`target`: the object with the annotation. `on_changed` is called whenever the pause changes. `on_pause` is
        called with the description of a pause before it is written. `describe_effect`: added to the result of a pause.
        `sets_attribute`: set TenurePaused."""
        self._target, self._state, self._update_state = target, state, update_state
        self._on_changed, self._on_pause, self._describe_effect, self._sets_attribute = (
            on_changed,
            on_pause,
            describe_effect,
            sets_attribute,
        )
        self._is_writing = False
        self._is_attribute_set: bool | None = None

    @property
    def is_writing(self) -> bool:
        return self._is_writing

    @property
    def target_name(self) -> str:
        target = self._target()
        return f"{target.kind} {target.name}".strip() if target.kind != "Cluster" else "the cluster"

    # --- requests of operators ---

    def validate(self, pause: Pause) -> None:
        """Raises ValueError with field, value and expected form."""
        if problem := problem_of(pause, workflow.now()):
            raise ValueError(problem)

    def set_pause(self, pause: Pause) -> OperatorRequestResult:
        """Apply a pause. An invalid pause from a signal is corrected if possible, since its sender wanted to stop
        disruption. Updates are validated before."""
        normalized = normalize_pause(pause)
        if problem := problem_of(normalized, workflow.now()):
            return OperatorRequestResult(accepted=False, message=problem)
        self._apply_pause(normalized)
        return OperatorRequestResult(
            message=f"{self.target_name} is paused until {normalized.until.isoformat()}. "
            f"{self._describe_effect()}".strip()
        )

    def clear_pause(self, resume: Resume) -> OperatorRequestResult:
        before = self._state().pause
        self._apply_pause(None)
        return OperatorRequestResult(
            message=f"{self.target_name} is no longer paused" if before else f"{self.target_name} was not paused"
        )

    def observe_annotation(self, text: str) -> None:
        """Apply a changed annotation. Values that the workflow wrote itself are ignored, also if they arrive late."""
        mirror = self._state().pause_annotation
        if text == mirror.observed:
            return
        own_echoes = mirror.echoes if mirror.written and workflow.now() - mirror.written < ECHO_WINDOW else ()
        if text == mirror.current or text in own_echoes:
            remaining = own_echoes[own_echoes.index(text) + 1 :] if text in own_echoes else ()
            self._update_state(pause_annotation=mirror.model_copy(update={"observed": text, "echoes": remaining}))
            return
        self._update_state(pause_annotation=mirror.model_copy(update={"current": text, "observed": text, "echoes": ()}))
        self._apply_pause(pause_from_annotation(text))

    def _apply_pause(self, pause: Pause | None) -> None:
        if pause != self._state().pause:
            self._update_state(pause=pause)
            self._on_changed()

    # --- queries ---

    def describe_active_pause(self, now: datetime) -> str:
        """The target with the requester, end and reason of its pause; empty if it is not paused."""
        pause = self._state().pause
        return f"{self.target_name} {describe_pause(pause)}" if pause and is_pause_active(pause, now) else ""

    # --- writes ---

    async def run(self) -> None:
        """Run until cancelled. Without a pause this costs no history event."""
        await workflow.wait_condition(self._has_work)
        self._normalize_pause()
        while True:
            self._end_if_expired()
            if self._is_out_of_sync():
                attempted = self._state().pause
                if not await self._try_write():
                    await self._wait_before_retry(attempted)
                continue
            await self._wait_for_change()

    def _normalize_pause(self) -> None:
        """A recovered pause may not be normalized."""
        pause = self._state().pause
        if pause is not None and pause.until != NEVER:
            self._update_state(pause=normalize_pause(pause))

    def _has_work(self) -> bool:
        return self._state().pause is not None or self._is_out_of_sync()

    def _is_out_of_sync(self) -> bool:
        state = self._state()
        return state.pause != state.pause_annotation.notified or self._annotation_to_write() is not None

    def _annotation_to_write(self) -> str | None:
        """None if the annotation already has the pause."""
        state = self._state()
        return (
            None if pause_from_annotation(state.pause_annotation.current) == state.pause else write_pause(state.pause)
        )

    def _end_if_expired(self) -> None:
        pause = self._state().pause
        if pause is not None and not is_pause_active(pause, workflow.now()):
            self._apply_pause(None)

    async def _wait_for_change(self) -> None:
        until = pause_end(self._state().pause)
        timeout = time_until(until) if until else None
        previous = self._state().pause
        try:
            await workflow.wait_condition(
                lambda: self._state().pause != previous or self._is_out_of_sync(),
                timeout=timeout,
                timeout_summary="the end of the pause" if timeout else None,
            )
        except TimeoutError:
            return

    async def _wait_before_retry(self, attempted: Pause | None) -> None:
        """Another pause is written at once, since permits may have been granted before it."""
        summary = "before the next attempt to write the pause annotation"
        await wait_at_most(RETRY_AFTER, lambda: self._state().pause != attempted, summary)

    async def _try_write(self) -> bool:
        self._is_writing = True
        try:
            await self._write()
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return False
        finally:
            self._is_writing = False
        return True

    async def _write(self) -> None:
        pause, before = self._state().pause, self._state().pause_annotation
        self._publish_attribute(pause is not None)
        if pause is not None and pause != before.notified and self._on_pause is not None:
            await self._on_pause(f"{self.target_name} {describe_pause(pause)}")
        text = self._annotation_to_write()
        request = self._build_request(pause, before, text)
        if text is not None:
            echoes = (*self._state().pause_annotation.echoes, text)
            self._update_mirror(current=text, echoes=echoes, written=workflow.now())
        try:
            await workflow.execute_activity_method(
                AnnotationActivities.sync_pause_annotation,
                request,
                **with_summary(PATCH, "write the pause annotation" if pause else "resume"),
            )
        except ActivityError:
            # The annotation has its earlier value, or one that a user has written since.
            current = self._state().pause_annotation
            self._update_mirror(current=before.current if current.current == text else current.current, echoes=())
            raise
        self._update_mirror(notified=pause)

    def _build_request(self, pause: Pause | None, before: PauseAnnotation, text: str | None) -> PauseAnnotationRequest:
        """The annotation of an expired pause is removed only if it is unchanged, since a user may have extended it."""
        annotation_fields = {"write": text is not None, "text": text or ""}
        if pause is not None:
            event = "DisruptionPaused" if pause != before.notified else ""
            event_fields = {
                "event": event,
                "message": f"{self.target_name} {describe_pause(pause)}",
                "warning": pause.until == NEVER,
            }
            return self._target().model_copy(update={**annotation_fields, **event_fields})
        ended = before.notified or pause_from_annotation(before.current)
        is_expired = ended is not None and not is_pause_active(ended, workflow.now())
        why = f": the pause by {ended.by} ended at {ended.until.isoformat()}" if ended and is_expired else ""
        event_fields = {"event": "DisruptionResumed", "message": f"{self.target_name} is no longer paused{why}"}
        return self._target().model_copy(
            update={**annotation_fields, **event_fields, "only": before.current if is_expired else ""}
        )

    def _update_mirror(self, **fields: object) -> None:
        self._update_state(pause_annotation=self._state().pause_annotation.model_copy(update=fields))

    def _publish_attribute(self, paused: bool) -> None:
        if self._sets_attribute and self._is_attribute_set is not paused:
            self._is_attribute_set = paused
            update = search_attributes.PAUSED.value_set(True) if paused else search_attributes.PAUSED.value_unset()
            workflow.upsert_search_attributes([update])

    def observe_if_newer(self, observed: ObservedPause) -> None:
        """`observe_annotation` for a numbered observation; ignores older ones."""
        if observed.number > self._state().pause_annotation.number:
            self._update_mirror(number=observed.number)
            self.observe_annotation(observed.text)


class Pausable:
    """Updates validate the request and return a result. Signals work in bulk and without a running worker."""

    _pause_controller: PauseController

    @workflow.update(
        description="Pause voluntary disruption: "
        '{"by": "ann", "reason": "training run", "until": "2026-06-01T18:00:00Z"}'
    )
    def pause(self, pause: Pause) -> OperatorRequestResult:
        return self._pause_controller.set_pause(pause)

    @pause.validator
    def _validate_pause(self, pause: Pause) -> None:
        self._pause_controller.validate(pause)

    @workflow.signal(description="The update pause without a result, for use in bulk or without a running worker")
    def pause_disruption(self, pause: Pause) -> None:
        self._pause_controller.set_pause(pause)

    @workflow.update(description='Resume voluntary disruption: {"by": "ann"}')
    def resume(self, resume: Resume) -> OperatorRequestResult:
        return self._pause_controller.clear_pause(resume)

    @workflow.signal(description="The update resume without a result, for use in bulk or without a running worker")
    def resume_disruption(self, resume: Resume) -> None:
        self._pause_controller.clear_pause(resume)


class PausableCluster(Pausable):
    """For the Cluster workflow. NodePools receive its pause from the watch, as the annotation of the worker's
    namespace, so it applies even if the Cluster workflow does not run."""

    @workflow.signal(description="From the watch: the annotation on the worker's namespace")
    def observe_pause(self, observed: ObservedPause) -> None:
        self._pause_controller.observe_if_newer(observed)
