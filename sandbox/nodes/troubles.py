"""Plays a trouble that lasts a while on a node that is up: begins it, waits, ends it."""

import asyncio
import itertools
from typing import assert_never

from sandbox.nodes.kubelet import STARTING, Kubelet, Report, new_boot_id
from sandbox.nodes.node import ConditionStatus
from sandbox.nodes.rules import AddTaint, Deregister, Lasting, LoseCni, NotReady, SetCondition

_SERIAL = itertools.count()
_LOST = Report("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
_RESTARTING = Report("False", "KubeletNotReady", "PLEG is not healthy: pleg has yet to be successful")


async def play(trouble: Lasting, kubelet: Kubelet) -> bool:
    """Seconds count from the call. Whether the kubelet has to register anew when it is over."""
    await asyncio.sleep(trouble.after_seconds)
    match trouble:
        case AddTaint():
            taints = [taint.to_object() for taint in trouble.taints]
            await kubelet.add_taints(taints)
            if await _lasts(trouble):
                await kubelet.remove_taints(taints)
        case NotReady():
            await _not_ready(trouble, kubelet, _LOST if trouble.status == "Unknown" else _RESTARTING)
        case LoseCni():
            await _not_ready(trouble, kubelet, STARTING)
        case SetCondition():
            await _condition(trouble, kubelet)
        case Deregister():
            await kubelet.delete()
            return await _lasts(trouble)
        case _:
            assert_never(trouble)
    return False


async def _not_ready(trouble: NotReady | LoseCni, kubelet: Kubelet, report: Report) -> None:
    key = f"{trouble.kind}-{next(_SERIAL)}"
    await kubelet.trouble(key, report)
    if await _lasts(trouble):
        rebooted = isinstance(trouble, NotReady) and trouble.new_boot_id
        await kubelet.recover(key, boot_id=new_boot_id() if rebooted else "")


async def _condition(trouble: SetCondition, kubelet: Kubelet) -> None:
    report = Report(trouble.status, trouble.reason, trouble.message)
    await kubelet.set_condition(trouble.type, report, survives=trouble.survives_reboot)
    if await _lasts(trouble):
        over: ConditionStatus = "False" if trouble.status == "True" else "True"
        await kubelet.set_condition(trouble.type, Report(over, "RuleEnded", "the rule's time is over"), survives=True)


async def _lasts(trouble: Lasting) -> bool:
    """Wait until it is over; False at once when it never is."""
    if trouble.for_seconds is None:
        return False
    await asyncio.sleep(trouble.for_seconds)
    return True
