"""One simulated node: its behavior from boot to termination, as the Kubernetes API sees it.

The simulator reports each new instance state; the node runs the consequences in one task, and cancels it when the
state changes. Temporary faults run concurrently.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.boot import Facts, NeverJoins, prepare_body
from tenure.sandbox.nodes.capacity import found_by_plugins
from tenure.sandbox.nodes.device_driver import build_slices
from tenure.sandbox.nodes.fault_rules import (
    AddTaint,
    Deregister,
    InjectedFault,
    LateDevices,
    LoseCni,
    NotReady,
    RuntimeFault,
    SetCondition,
    SlowBoot,
    SlowReady,
    run_fault,
)
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.kubelet import SHUTTING_DOWN, WELL, Body, Kubelet
from tenure.sandbox.nodes.node_objects import NodesApi, Taints
from tenure.sandbox.nodes.settings import NodesSettings

_LOG = logging.getLogger(__name__)
Stage = Literal[
    "waiting", "booting", "no-cluster", "failed", "silent", "registered", "ready", "stopped", "leaving", "gone"
]
_Play = Literal["wait", "live", "halt", "leave", "go"]
_PLAYS: dict[str, _Play] = {
    "pending": "wait",
    "running": "live",
    "stopping": "halt",
    "stopped": "halt",
    "shutting-down": "leave",
    "terminated": "go",
}
_FROM_REGISTRATION = (AddTaint, Deregister)
_FROM_READY = (NotReady, LoseCni, SetCondition)


class Machine:
    """`match_faults` returns the faults of a boot."""

    def __init__(
        self,
        instance: Instance,
        api: NodesApi,
        settings: NodesSettings,
        *,
        match_faults: Callable[[Instance], Sequence[InjectedFault]],
        facts: Facts,
    ) -> None:
        self.instance = instance
        self.stage: Stage = "waiting"
        self.message = ""
        self._settings, self._match_faults, self._facts = settings, match_faults, facts
        self._kubelet = Kubelet(api, instance.node_name)
        self._faults: Sequence[InjectedFault] = ()
        self._play: _Play = "wait"
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_finished(self) -> bool:
        """Whether the instance is terminated, and its Node is deleted or being deleted."""
        return self.stage == "gone" and not self._tasks

    def adopt(self, node: Json) -> None:
        """Use an existing Node. Call it before the first `observe`."""
        self._kubelet.adopt(node)

    def observe(self, instance: Instance) -> None:
        """Update the state of the instance."""
        rebooted = instance.reboots > self.instance.reboots
        self.instance = instance
        play = _PLAYS[instance.state]
        if play != self._play:
            self._play = play
            self.stop()
            self._start(self._perform(play))
        elif rebooted and play == "live" and self._kubelet.uid:
            self.stop()
            self._start(self._reboot())

    def can_inject(self, fault: InjectedFault) -> bool:
        """Whether the machine is running and the fault is not one of the boot."""
        return self.stage in ("registered", "ready") and isinstance(fault, (*_FROM_REGISTRATION, *_FROM_READY))

    def inject(self, fault: InjectedFault) -> None:
        """Start a fault, if possible."""
        if self.can_inject(fault) and isinstance(fault, (*_FROM_REGISTRATION, *_FROM_READY)):
            self._start(self._run_fault(fault))

    async def repost_status(self, node: Json) -> None:
        """Report the status again if Kubernetes marked the running node Unknown."""
        if self.stage in ("registered", "ready"):
            await self._kubelet.repost_status(node)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _perform(self, play: _Play) -> None:
        match play:
            case "wait":
                self.stage = "waiting"
            case "live":
                await self._boot_and_run()
            case "halt":
                self.stage = "stopped"
                await self._kubelet.halt()
            case "leave":
                self.stage = "leaving"
                if self._kubelet.uid:
                    await self._kubelet.report(SHUTTING_DOWN)
            case "go":
                await self._kubelet.delete()
                self.stage = "gone"

    async def _boot_and_run(self) -> None:
        if self.stage == "waiting" and self._kubelet.is_healthy:
            self.stage = "ready"
            await self._find_devices(await self._facts.machine_type(self.instance.instance_type))
            return
        rebooting = self._kubelet.halted
        self.stage = "booting"
        self._faults = self._match_faults(self.instance)
        if rebooting or not self._kubelet.uid:
            await asyncio.sleep(self._settings.boot_seconds + self._fault_delay(SlowBoot))
        body = await self._find_out()
        if rebooting:
            await self._kubelet.restart()
        await self._join_cluster(body, is_restart=False)

    async def _reboot(self) -> None:
        """The Node remains. Faults end, except those that survive reboots."""
        self.stage = "booting"
        await self._kubelet.report(SHUTTING_DOWN)
        await asyncio.sleep(self._settings.boot_seconds)
        body = await self._find_out()
        await self._kubelet.restart()
        await self._join_cluster(body, is_restart=True)

    async def _join_cluster(self, body: Body, *, is_restart: bool) -> None:
        """From registration to devices. `is_restart`: the kubelet ran before, and its faults are not started again."""
        await self._kubelet.register(body, self._first_taints())
        self.stage = "registered"
        self._start_faults(() if is_restart else _FROM_REGISTRATION)
        await asyncio.sleep(self._settings.ready_seconds + self._fault_delay(SlowReady))
        await self._kubelet.report(WELL)
        self.stage = "ready"
        self._start_faults(() if is_restart else _FROM_READY)
        await self._find_devices(body.machine)

    async def _find_devices(self, machine: MachineType) -> None:
        late = next((fault for fault in self._faults if isinstance(fault, LateDevices)), None)
        devices = found_by_plugins(self.instance, machine)
        if not devices or (late and late.seconds is None):
            return
        await asyncio.sleep(self._settings.device_seconds + ((late and late.seconds) or 0))
        await self._kubelet.report_devices(devices)
        await self._kubelet.publish_slices(build_slices(self.instance.node_name, self._kubelet.uid, machine, devices))

    async def _run_fault(self, fault: RuntimeFault) -> None:
        if await run_fault(fault, self._kubelet):
            await self._join_cluster(await self._find_out(), is_restart=True)

    def _start_faults(self, kinds: tuple[type[Any], ...]) -> None:
        for fault in self._faults:
            if isinstance(fault, kinds):
                self._start(self._run_fault(fault))

    def _first_taints(self) -> Taints:
        """Taints of rules that apply from registration."""
        early = (fault for fault in self._faults if isinstance(fault, AddTaint) and not fault.after_seconds)
        return [taint.to_object() for fault in early for taint in fault.taints]

    def _fault_delay(self, kind: type[SlowBoot] | type[SlowReady]) -> float:
        return sum(fault.seconds for fault in self._faults if isinstance(fault, kind))

    async def _find_out(self) -> Body:
        return await prepare_body(self.instance, self._facts, self._settings, self._faults)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._run_guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Log an unexpected error, so that it only affects this machine."""
        try:
            await work
        except NeverJoins as end:
            self.stage, self.message = end.stage, str(end)
            _LOG.warning("%s: %s", self.instance.id, end)
        except Exception as error:
            self.stage, self.message = "failed", f"{type(error).__name__}: {error}"
            _LOG.exception("%s: simulation failed", self.instance.id)
