"""One machine: what an instance does from its boot to its end, as the Kubernetes API sees it.

The simulator tells it each new state of its instance; the machine plays what follows in one task, and drops that when
the instance's state asks for something else. Troubles that last a while run beside it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.boot import Facts, NeverJoins, find_out
from tenure.sandbox.nodes.capacity import found_by_plugins
from tenure.sandbox.nodes.fault_rules import (
    AddTaint,
    Deregister,
    Lasting,
    LateDevices,
    LoseCni,
    NotReady,
    SetCondition,
    SlowBoot,
    SlowReady,
    Trouble,
    play,
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
    """`draw` gives the troubles of a boot."""

    def __init__(
        self,
        instance: Instance,
        api: NodesApi,
        settings: NodesSettings,
        *,
        draw: Callable[[Instance], Sequence[Trouble]],
        facts: Facts,
    ) -> None:
        self.instance = instance
        self.stage: Stage = "waiting"
        self.note = ""
        self._settings, self._draw, self._facts = settings, draw, facts
        self._kubelet = Kubelet(api, instance.node_name)
        self._troubles: Sequence[Trouble] = ()
        self._play: _Play = "wait"
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def over(self) -> bool:
        """Nothing is left to do: the instance is gone, and so is its Node, or its deletion was asked for."""
        return self.stage == "gone" and not self._tasks

    def adopt(self, node: Json) -> None:
        """There is a Node of it already. To be called before the first `see`."""
        self._kubelet.adopt(node)

    def see(self, instance: Instance) -> None:
        """The instance as it is now."""
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

    def can_suffer(self, trouble: Trouble) -> bool:
        """Whether the machine is up and the trouble is not one of the boot."""
        return self.stage in ("registered", "ready") and isinstance(trouble, (*_FROM_REGISTRATION, *_FROM_READY))

    def befall(self, trouble: Trouble) -> None:
        """A trouble begins now, if it can."""
        if self.can_suffer(trouble) and isinstance(trouble, (*_FROM_REGISTRATION, *_FROM_READY)):
            self._start(self._suffer(trouble))

    async def post_again(self, node: Json) -> None:
        """The Node as it stands; said anew where Kubernetes lost sight of a machine that runs."""
        if self.stage in ("registered", "ready"):
            await self._kubelet.post_again(node)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _perform(self, play: _Play) -> None:
        match play:
            case "wait":
                self.stage = "waiting"
            case "live":
                await self._live()
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

    async def _live(self) -> None:
        if self.stage == "waiting" and self._kubelet.well:
            self.stage = "ready"
            await self._find_devices(await self._facts.machine_type(self.instance.instance_type))
            return
        rebooting = self._kubelet.halted
        self.stage = "booting"
        self._troubles = self._draw(self.instance)
        if rebooting or not self._kubelet.uid:
            await asyncio.sleep(self._settings.boot_seconds + self._delay(SlowBoot))
        body = await self._find_out()
        if rebooting:
            await self._kubelet.restart()
        await self._join(body, anew=False)

    async def _reboot(self) -> None:
        """The Node stays; what troubled it is over, but for what a rule says to survive."""
        self.stage = "booting"
        await self._kubelet.report(SHUTTING_DOWN)
        await asyncio.sleep(self._settings.boot_seconds)
        body = await self._find_out()
        await self._kubelet.restart()
        await self._join(body, anew=True)

    async def _join(self, body: Body, *, anew: bool) -> None:
        """From registration to devices. `anew`: the kubelet was up before, and its troubles are not begun again."""
        await self._kubelet.register(body, self._first_taints())
        self.stage = "registered"
        self._suffer_all(() if anew else _FROM_REGISTRATION)
        await asyncio.sleep(self._settings.ready_seconds + self._delay(SlowReady))
        await self._kubelet.report(WELL)
        self.stage = "ready"
        self._suffer_all(() if anew else _FROM_READY)
        await self._find_devices(body.machine)

    async def _find_devices(self, machine: MachineType) -> None:
        late = next((trouble for trouble in self._troubles if isinstance(trouble, LateDevices)), None)
        devices = found_by_plugins(self.instance, machine)
        if not devices or (late and late.seconds is None):
            return
        await asyncio.sleep(self._settings.device_seconds + ((late and late.seconds) or 0))
        await self._kubelet.show_devices(devices)

    async def _suffer(self, trouble: Lasting) -> None:
        if await play(trouble, self._kubelet):
            await self._join(await self._find_out(), anew=True)

    def _suffer_all(self, kinds: tuple[type[Any], ...]) -> None:
        for trouble in self._troubles:
            if isinstance(trouble, kinds):
                self._start(self._suffer(trouble))

    def _first_taints(self) -> Taints:
        """Those that a rule wants from the first moment."""
        early = (trouble for trouble in self._troubles if isinstance(trouble, AddTaint) and not trouble.after_seconds)
        return [taint.to_object() for trouble in early for taint in trouble.taints]

    def _delay(self, kind: type[SlowBoot] | type[SlowReady]) -> float:
        return sum(trouble.seconds for trouble in self._troubles if isinstance(trouble, kind))

    async def _find_out(self) -> Body:
        return await find_out(self.instance, self._facts, self._settings, self._troubles)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """An unforeseen end is noted and logged: one machine's failure is not the others'."""
        try:
            await work
        except NeverJoins as end:
            self.stage, self.note = end.stage, str(end)
            _LOG.warning("%s: %s", self.instance.id, end)
        except Exception as error:
            self.stage, self.note = "failed", f"{type(error).__name__}: {error}"
            _LOG.exception("%s: its life broke off", self.instance.id)
