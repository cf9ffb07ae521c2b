"""The kubelet of a machine: it registers the Node and maintains its status, including active faults.

`machine.py` decides when; this module writes the objects.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.sandbox.controlplane.commands import KUBELET
from tenure.sandbox.nodes import node_objects as objects
from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.capacity import Resources
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.node_objects import ConditionStatus, NodesApi, Taints, merge_taints, remove_taints
from tenure.sandbox.nodes.userdata import Join

_LOG = logging.getLogger(__name__)
_NAME_TAKEN_SECONDS = 0.5
_OWN_DOMAINS = ("kubernetes.io", "k8s.io")
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)


@dataclass(frozen=True)
class Body:
    """Data of a machine for its Node."""

    instance: Instance
    machine: MachineType
    join: Join
    resources: Resources
    region: str


@dataclass(frozen=True)
class Report:
    """Status, reason and message of a condition."""

    status: ConditionStatus
    reason: str
    message: str


STARTING = Report("False", "KubeletNotReady", objects.CNI_MESSAGE)
WELL = Report("True", "KubeletReady", "kubelet is posting ready status")
SHUTTING_DOWN = Report("False", "KubeletNotReady", "node is shutting down")


def rejected_labels(labels: dict[str, str]) -> list[str]:
    """Labels with which a kubelet does not start: those of Kubernetes' domains, with exceptions."""
    return sorted(key for key in labels if not _may_set(key))


def _may_set(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    owned = any(domain == own or domain.endswith("." + own) for own in _OWN_DOMAINS)
    allowed = any(domain == one or domain.endswith("." + one) for one in _ALLOWED_DOMAINS)
    return not owned or allowed or key in _ALLOWED_LABELS


class Kubelet:
    """The kubelet of one machine. `uid`: UID of the Node that it created or found; empty before."""

    def __init__(self, api: NodesApi, name: str) -> None:
        self._api, self.name = api, name
        self.uid = ""
        self.halted = False
        """The instance is stopped, and its Node is kept."""
        self._provider_id = ""
        self._boot_id = new_boot_id()
        self._base = STARTING
        self._faults: dict[str, Report] = {}
        self._passing: dict[str, ConditionStatus] = {}
        """Healthy status of conditions that a boot resets, by type."""

    def adopt(self, node: Json) -> None:
        """Continue with a Node of a previous simulator."""
        self.uid = node["metadata"]["uid"]
        self._provider_id = node["spec"].get("providerID", "")
        self._boot_id = node["status"]["nodeInfo"]["bootID"]
        self.halted = node["metadata"]["labels"].get(KUBELET) == "stopped"
        ready = next((found for found in node["status"]["conditions"] if found["type"] == "Ready"), None)
        self._base = WELL if ready and ready["status"] == "True" else STARTING

    @property
    def is_healthy(self) -> bool:
        return self._base is WELL and not self._faults

    async def register(self, body: Body, more_taints: Taints) -> None:
        """Create the Node, or adopt the one of the same instance. Waits while the name belongs to another."""
        self._base = STARTING
        self._provider_id = body.instance.provider_id
        node = objects.node_object(
            body.instance,
            body.machine,
            body.join,
            region=body.region,
            resources=body.resources,
            boot_id=self._boot_id,
        )
        node["spec"]["taints"] = merge_taints(node["spec"]["taints"], more_taints)
        while not self.uid:
            created = await self._api.create(node) or await self._own_node()
            if created:
                self.uid = created["metadata"]["uid"]
            else:
                _LOG.info("%s: the name is taken by another machine's node", self.name)
                await asyncio.sleep(_NAME_TAKEN_SECONDS)

    async def restart(self) -> None:
        """Boot of a machine whose Node exists: a new boot ID, not Ready, no shutdown taint."""
        self.halted = False
        self._base = STARTING
        self._faults.clear()
        await self._write(self._new_boot())
        for kind, status in self._passing.items():
            over: ConditionStatus = "False" if status == "True" else "True"
            await self.set_condition(kind, Report(over, "Booted", "the machine has booted"), survives=True)
        self._passing.clear()
        await self._api.patch(self.name, {"metadata": {"labels": {KUBELET: None}}})
        await self.remove_taints([objects.SHUTDOWN_TAINT])

    async def report(self, base: Report) -> None:
        """Report the condition Ready, unless a fault overrides it."""
        self._base = base
        await self._write({})

    async def repost_status(self, node: Json) -> None:
        """Report again after Kubernetes marked the Node Unknown because of late Leases, although its kubelet runs."""
        ready = next((one for one in node["status"].get("conditions", ()) if one["type"] == "Ready"), None)
        stopped = self.halted or node["metadata"]["labels"].get(KUBELET) == "stopped"
        if ready is None or stopped or node["metadata"]["uid"] != self.uid:
            return
        if ready["status"] == "Unknown" and self._current_report().status != "Unknown":
            await self._write({})

    async def add_fault(self, key: str, report: Report) -> None:
        """Override Ready until the fault is removed. The latest fault counts."""
        self._faults[key] = report
        await self._write({})

    async def remove_fault(self, key: str, *, rebooted: bool) -> None:
        self._faults.pop(key, None)
        await self._write(self._new_boot() if rebooted else {})

    async def set_condition(self, kind: str, report: Report, *, survives: bool) -> None:
        """Set a condition other than Ready. `survives`: a boot does not reset it."""
        if not survives:
            self._passing[kind] = report.status
        await self._api.patch_status(self.name, {"conditions": [_condition(kind, report)]})

    async def report_devices(self, devices: dict[str, int]) -> None:
        amounts = {resource: str(count) for resource, count in devices.items()}
        await self._api.patch_status(self.name, {"capacity": amounts, "allocatable": amounts})

    async def publish_slices(self, slices: Iterable[Json]) -> None:
        """Publish ResourceSlices, as the DRA drivers of the machine do. Existing ones stay."""
        for one in slices:
            await self._api.create_slice(one)

    async def add_taints(self, taints: Taints) -> None:
        await self._api.change_taints(self.name, lambda before: merge_taints(before, taints))

    async def remove_taints(self, taints: Taints) -> None:
        await self._api.change_taints(self.name, lambda before: remove_taints(before, taints))

    async def halt(self) -> None:
        """The instance is stopped: no heartbeats, and the cloud controller's shutdown taint."""
        if not self.uid:
            return
        self.halted = True
        await self.report(SHUTTING_DOWN)
        await self._api.patch(self.name, {"metadata": {"labels": {KUBELET: "stopped"}}})
        await self.add_taints([objects.SHUTDOWN_TAINT])

    async def deregister(self, *, rebooted: bool) -> None:
        """Delete the Node without its finalizers, as an operator does by force."""
        if rebooted:
            self._new_boot()
        await self._api.patch(self.name, {"metadata": {"uid": self.uid, "finalizers": None}})
        await self.delete()

    async def delete(self) -> None:
        """Also if the response to its creation was lost."""
        if not self.uid and self._provider_id and (found := await self._own_node()):
            self.uid = found["metadata"]["uid"]
        if self.uid:
            await self._api.delete(self.name, self.uid)
        self.uid = ""

    async def _own_node(self) -> Json | None:
        found = await self._api.get(self.name)
        return found if found and found["spec"].get("providerID") == self._provider_id else None

    async def _write(self, status: Json) -> None:
        await self._api.patch_status(self.name, status | {"conditions": [_condition("Ready", self._current_report())]})

    def _new_boot(self) -> Json:
        """The part of the status that a boot changes."""
        self._boot_id = new_boot_id()
        return {"nodeInfo": {"bootID": self._boot_id}}

    def _current_report(self) -> Report:
        return next(reversed(self._faults.values()), self._base)


def new_boot_id() -> str:
    """Starts with a letter, so that no template parses it as a number."""
    return f"boot-{uuid.uuid4()}"


def _condition(kind: str, report: Report) -> Json:
    return objects.condition(kind, report.status, report.reason, report.message, stamp=objects.now())
