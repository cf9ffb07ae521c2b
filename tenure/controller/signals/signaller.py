"""Signal-with-start of workflows: one signal at a time per workflow, and only changes.

A new host of the watch repeats all observations, because the accepted digests are in memory only. Signals of other
priority do not wait for these, nor does a failed signal delay a more urgent one."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from itertools import count
from typing import Final

import structlog
from aiolimiter import AsyncLimiter
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from tenure.endpoints import Endpoints
from tenure.model.base import Message
from workflows import ids

log = structlog.get_logger(__name__)

ENDPOINT: Final = "Temporal"
UNREACHABLE: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
MAX_CONCURRENT_SIGNALS: Final = 16
ROUTINE_BURST, ROUTINE_SECONDS = 100, 5.0
"""At most so many routine signals in this time. A new host has one for each node, and each may cost a replay, which
would delay the first plan."""
LEASE_CHECK_SECONDS: Final = 0.5
"""Between two checks of a Lease that could not be renewed in time."""
_MIN_BACKOFF_SECONDS: Final = 0.2
_MAX_BACKOFF_SECONDS: Final = 10.0
_RPC_TIMEOUT: Final = timedelta(seconds=10)
_OVERLOADED: Final = (*UNREACHABLE, RPCStatusCode.RESOURCE_EXHAUSTED)
"""The next signal would fail, too: Temporal does not respond, or a limit of the namespace is reached."""


class Urgency(IntEnum):
    """The most urgent signals are sent first; those of equal urgency in their order."""

    COORDINATOR = 0
    """To a workflow of the cluster, of a NodePool or of an EC2NodeClass. Pending pods wait for it."""
    NODECLAIM = 1
    """A change of a node. Thousands may arrive at once, when a zone is lost."""
    ROUTINE = 2
    """`Signal.low_priority`."""


@dataclass(frozen=True)
class Start:
    """How to start the workflow when it is not running."""

    workflow: str
    state: Message
    attributes: TypedSearchAttributes | None = None
    summary: str = ""
    details: str = ""
    """Static details, as Markdown."""
    allow_restart: bool = True
    """Whether to start it although a run of this ID completed. False for workflows that run only once."""


@dataclass(frozen=True)
class Signal:
    workflow_id: str
    name: str
    argument: Message
    digest: str
    """The digest stored as sent; equal digests are not sent twice."""
    start: Start | None = None
    """None: signal only a running workflow."""
    low_priority: bool = False
    """A repeated observation of a node that needs no action."""
    topic: str = ""
    """Separates kinds of signals to one workflow: a signal replaces only a waiting one of the same topic."""

    @property
    def key(self) -> str:
        return f"{self.workflow_id}#{self.topic}" if self.topic else self.workflow_id

    @property
    def urgency(self) -> Urgency:
        if self.low_priority:
            return Urgency.ROUTINE
        return Urgency.NODECLAIM if ids.nodeclaim_name(self.workflow_id) else Urgency.COORDINATOR


class SignalQueue:
    """Run `run` in a task; `enqueue` from anywhere in the same loop."""

    def __init__(
        self,
        client: Client,
        cluster: str,
        endpoints: Endpoints | None = None,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_leading`: while it is false, nothing is sent. A process that was frozen computes signals from outdated
        caches, and the new leader would not repeat its own."""
        self._endpoints = endpoints or Endpoints()
        self._client = client
        self._cluster = cluster
        self._is_leading = is_leading
        self.sent: dict[str, str] = {}
        """The accepted digests by key."""
        self.count = 0
        """Signals accepted by the server."""
        self._waiting: dict[str, Signal] = {}
        self._busy: dict[str, Signal] = {}
        self._ready: asyncio.PriorityQueue[tuple[Urgency, int, str]] = asyncio.PriorityQueue()
        """Urgency, sequence number, key. A key may be listed twice after its urgency has risen."""
        self._routine: asyncio.Queue[str] = asyncio.Queue()
        """Keys of routine signals that are not ready yet."""
        self._routine_limiter = AsyncLimiter(ROUTINE_BURST, ROUTINE_SECONDS)
        self._sequence = count()
        self._failures: dict[str, int] = {}
        """Consecutive failures by key."""

    def enqueue(self, signal: Signal) -> bool:
        """Queue this signal in place of a waiting one, unless the workflow received it last. False when it is not
        queued."""
        known = self._waiting.get(signal.key) or self._busy.get(signal.key)
        last_digest = known.digest if known else self.sent.get(signal.key)
        if last_digest == signal.digest:
            return False
        waiting = self._waiting.get(signal.key)
        self._waiting[signal.key] = signal
        is_listed = waiting is not None and waiting.urgency <= signal.urgency
        if not is_listed and signal.key not in self._busy:
            self._list(signal)
        return True

    def _list(self, signal: Signal) -> None:
        if signal.urgency is Urgency.ROUTINE:
            self._routine.put_nowait(signal.key)
        else:
            self._ready.put_nowait((signal.urgency, next(self._sequence), signal.key))

    def discard(self, key: str) -> None:
        """Drop the waiting signal and the sent digest, since the object is gone. `key`: as in `Signal.key`."""
        self._waiting.pop(key, None)
        self._failures.pop(key, None)
        self.sent.pop(key, None)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._busy

    def last_digest(self, key: str) -> str:
        """The digest that was last accepted; empty for none."""
        return self.sent.get(key, "")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release_routine_signals())
            for _ in range(MAX_CONCURRENT_SIGNALS):
                group.create_task(self._process_queue())

    async def _release_routine_signals(self) -> None:
        while True:
            key = await self._routine.get()
            await self._routine_limiter.acquire()
            self._ready.put_nowait((Urgency.ROUTINE, next(self._sequence), key))

    async def _process_queue(self) -> None:
        """After a failure that concerns every signal, wait before the next one, which is again the most urgent."""
        failures = 0
        while True:
            _, _, key = await self._ready.get()
            while not self._is_leading():  # noqa: ASYNC110 - the Lease has no event
                await asyncio.sleep(LEASE_CHECK_SECONDS)
            if key in self._busy or (signal := self._waiting.pop(key, None)) is None:
                continue
            self._busy[key] = signal
            try:
                error = await self._try_send(signal)
            finally:
                del self._busy[key]
            if error is not None:
                self._retry_later(signal)
            elif key in self._waiting:
                self._list(self._waiting[key])
            failures = failures + 1 if error in _OVERLOADED else 0
            if failures:
                await asyncio.sleep(_backoff(failures))

    async def _try_send(self, signal: Signal) -> RPCStatusCode | None:
        """The status of a failure that must be retried."""
        try:
            await self._send(signal)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and signal.start is None:
                self.sent.pop(signal.key, None)
                self._failures.pop(signal.key, None)
                return None
            if error.status in UNREACHABLE:
                self._endpoints.record_failure(ENDPOINT, error.message)
            else:
                failures = self._failures.get(signal.key, 0) + 1
                log.warning("signal not accepted", workflow=signal.workflow_id, error=str(error), failures=failures)
            return error.status
        self._endpoints.record_response(ENDPOINT)
        self._failures.pop(signal.key, None)
        self.sent[signal.key] = signal.digest
        self.count += 1
        return None

    def _retry_later(self, signal: Signal) -> None:
        """List the signal again after a pause. A newer one that arrives meanwhile replaces it."""
        key = signal.key
        self._waiting.setdefault(key, signal)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        asyncio.get_running_loop().call_later(_backoff(failures), self._list, self._waiting[key])

    async def _send(self, signal: Signal) -> None:
        if signal.start is None:
            await self._client.get_workflow_handle(signal.workflow_id).signal(
                signal.name, signal.argument, rpc_timeout=_RPC_TIMEOUT
            )
            return
        start = signal.start
        reuse = WorkflowIDReusePolicy
        try:
            await self._client.start_workflow(
                start.workflow,
                start.state,
                id=signal.workflow_id,
                task_queue=ids.workflow_queue(self._cluster, start.workflow),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=reuse.ALLOW_DUPLICATE if start.allow_restart else reuse.ALLOW_DUPLICATE_FAILED_ONLY,
                start_signal=signal.name,
                start_signal_args=[signal.argument],
                search_attributes=start.attributes,
                static_summary=start.summary or None,
                static_details=start.details or None,
                rpc_timeout=_RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            # The workflow completed, and its object probably disappears soon. `resync.py` checks that.
            log.info("workflow already completed", workflow=signal.workflow_id)


def _backoff(failures: int) -> float:
    """Seconds, with jitter."""
    return random.uniform(0.5, 1) * min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2.0 ** min(failures, 8))
