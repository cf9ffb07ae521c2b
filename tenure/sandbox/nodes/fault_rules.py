"""Rules that inject faults into instances, and their assignment.

A rule names its instances and the fault. It is bound to an instance at boot. If the fault can affect a running node,
it is also bound to running nodes when it is posted (`existing`).

`run_fault` runs a temporary fault on a running node.
"""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from tenure.sandbox.nodes.instances import Instance
from tenure.sandbox.nodes.kubelet import STARTING, Kubelet, Report
from tenure.sandbox.nodes.node_objects import ConditionStatus
from tenure.sandbox.nodes.userdata.kubelet_join import Taint

NODEPOOL_TAG = "karpenter.sh/nodepool"
Seconds = Annotated[float, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NeverRegister(_Frozen):
    """The instance runs, but never registers a Node."""

    kind: Literal["never-register"] = "never-register"


class SlowBoot(_Frozen):
    """Additional seconds until the Node is registered."""

    kind: Literal["slow-boot"] = "slow-boot"
    seconds: Seconds


class SlowReady(_Frozen):
    """Additional seconds from registration to Ready."""

    kind: Literal["slow-ready"] = "slow-ready"
    seconds: Seconds


class LessMemory(_Frozen):
    """The operating system has only this much memory."""

    kind: Literal["less-memory"] = "less-memory"
    mebibytes: Annotated[int, Field(gt=0)]


class LateDevices(_Frozen):
    """Additional seconds until extended resources appear; None: never."""

    kind: Literal["late-devices"] = "late-devices"
    seconds: Seconds | None


class AddTaint(_Frozen):
    """An agent, such as a network agent, taints the node; `for_seconds` None: permanently."""

    kind: Literal["add-taint"] = "add-taint"
    taints: tuple[Taint, ...]
    after_seconds: Seconds = 0
    for_seconds: Seconds | None = None


class NotReady(_Frozen):
    """The node becomes NotReady, as during a restart of its kubelet; `for_seconds` None: permanently.

    `status` Unknown simulates a kubelet that stopped reporting.
    """

    kind: Literal["not-ready"] = "not-ready"
    after_seconds: Seconds = 0
    for_seconds: Seconds | None = None
    status: Literal["False", "Unknown"] = "False"
    new_boot_id: bool = False


class LoseCni(_Frozen):
    """The network plugin is missing for a while, and the kubelet reports it."""

    kind: Literal["lose-cni"] = "lose-cni"
    after_seconds: Seconds = 0
    for_seconds: Seconds | None = None


class SetCondition(_Frozen):
    """An agent reports a node condition for a while, such as `AcceleratedHardwareReady`. A reboot resets it unless it
    survives reboots."""

    kind: Literal["set-condition"] = "set-condition"
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = "SetByRule"
    message: str = ""
    survives_reboot: bool = False
    after_seconds: Seconds = 0
    for_seconds: Seconds | None = None


class Deregister(_Frozen):
    """Another client removes the Node's finalizers and deletes it; `for_seconds` later the kubelet registers again,
    None: never."""

    kind: Literal["deregister"] = "deregister"
    after_seconds: Seconds = 0
    for_seconds: Seconds | None = None
    new_boot_id: bool = False


BootFault = NeverRegister | SlowBoot | SlowReady | LessMemory | LateDevices
RuntimeFault = AddTaint | NotReady | LoseCni | SetCondition | Deregister
InjectedFault = Annotated[BootFault | RuntimeFault, Field(discriminator="kind")]


class Match(_Frozen):
    """The instances of a rule; empty fields match all."""

    instance_id: str = ""
    instance_type: str = ""
    nodepool: str = ""
    zone: str = ""
    node_name: str = ""

    def matches(self, instance: Instance) -> bool:
        criteria = (
            (self.instance_id, instance.id),
            (self.instance_type, instance.instance_type),
            (self.nodepool, instance.tags.get(NODEPOOL_TAG, "")),
            (self.zone, instance.zone),
            (self.node_name, instance.node_name),
        )
        return all(not want or want == has for want, has in criteria)


class Rule(_Frozen):
    """`count`: maximum number of affected instances; None: all that match."""

    fault: InjectedFault
    match: Match = Match()
    count: Annotated[int, Field(gt=0)] | None = None
    existing: bool = True
    id: str = ""


class FaultRules:
    """The active rules, each with its affected instances."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._affected_ids: dict[str, set[str]] = {}
        self._serial = 0

    def add(self, rule: Rule) -> Rule:
        """The rule with its given ID, or a new one."""
        self._serial += 1
        stored = rule.model_copy(update={"id": rule.id or f"rule-{self._serial}"})
        self._rules[stored.id] = stored
        self._affected_ids.setdefault(stored.id, set())
        return stored

    def remove(self, rule_id: str) -> bool:
        """Whether the rule existed. Faults that have started continue."""
        self._affected_ids.pop(rule_id, None)
        return self._rules.pop(rule_id, None) is not None

    def clear(self) -> None:
        self._rules.clear()
        self._affected_ids.clear()

    def entries(self) -> Iterable[tuple[Rule, frozenset[str]]]:
        """Each rule and the IDs of its affected instances."""
        return [(rule, frozenset(self._affected_ids[rule.id])) for rule in self._rules.values()]

    def match(self, instance: Instance) -> list[InjectedFault]:
        """Assign the faults of an instance at boot, and count them."""
        return [rule.fault for rule in self._rules.values() if self.applies(rule, instance)]

    def applies(self, rule: Rule, instance: Instance) -> bool:
        """Whether the rule applies to this instance and is not used up. Counts it if so."""
        affected = self._affected_ids.get(rule.id)
        if affected is None or instance.id in affected or not rule.match.matches(instance):
            return False
        if rule.count is not None and len(affected) >= rule.count:
            return False
        affected.add(instance.id)
        return True


_SERIAL = itertools.count()
_LOST = Report("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
_RESTARTING = Report("False", "KubeletNotReady", "PLEG is not healthy: pleg has yet to be successful")


async def run_fault(fault: RuntimeFault, kubelet: Kubelet) -> bool:
    """Seconds count from the call. Returns whether the kubelet must register again afterwards."""
    await asyncio.sleep(fault.after_seconds)
    match fault:
        case AddTaint():
            taints = [taint.to_object() for taint in fault.taints]
            await kubelet.add_taints(taints)
            if await _wait_until_over(fault):
                await kubelet.remove_taints(taints)
        case NotReady():
            await _report_not_ready(fault, kubelet, _LOST if fault.status == "Unknown" else _RESTARTING)
        case LoseCni():
            await _report_not_ready(fault, kubelet, STARTING)
        case SetCondition():
            await _report_condition(fault, kubelet)
        case Deregister():
            await kubelet.deregister(rebooted=fault.new_boot_id)
            return await _wait_until_over(fault)
        case _:
            assert_never(fault)
    return False


async def _report_not_ready(fault: NotReady | LoseCni, kubelet: Kubelet, report: Report) -> None:
    key = f"{fault.kind}-{next(_SERIAL)}"
    await kubelet.add_fault(key, report)
    if await _wait_until_over(fault):
        rebooted = isinstance(fault, NotReady) and fault.new_boot_id
        await kubelet.remove_fault(key, rebooted=rebooted)


async def _report_condition(fault: SetCondition, kubelet: Kubelet) -> None:
    report = Report(fault.status, fault.reason, fault.message)
    await kubelet.set_condition(fault.type, report, survives=fault.survives_reboot)
    if await _wait_until_over(fault):
        over: ConditionStatus = "False" if fault.status == "True" else "True"
        await kubelet.set_condition(fault.type, Report(over, "RuleEnded", "the rule's time is over"), survives=True)


async def _wait_until_over(fault: RuntimeFault) -> bool:
    """Wait until the fault is over; False at once if it is permanent."""
    if fault.for_seconds is None:
        return False
    await asyncio.sleep(fault.for_seconds)
    return True
