"""Extended resources that DeviceClasses provide by Dynamic Resource Allocation, which Tenure does not plan."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tenure.model.facts import DaemonSetFact, PodFact

_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Every DeviceClass provides a resource with this prefix and its name."""
_REASON: Final = (
    "spec.containers[].resources.requests[{}]: DeviceClass {} provides this resource by Dynamic Resource Allocation, "
    "which is not supported"
)
_ANY_REASON: Final = re.compile(re.escape(_REASON).replace(re.escape("{}"), r"\S+"))


def extended_resource_of(device_class: Mapping[str, Any]) -> str:
    """The extended resource that the DeviceClass names; empty if there is none or it is not a string."""
    found = (device_class.get("spec") or {}).get("extendedResourceName")
    return found if isinstance(found, str) else ""


def select_dra_resources(requested: Iterable[str], provided: Collection[str]) -> tuple[str, ...]:
    """The requested resources that DeviceClasses provide. kube-scheduler allocates devices for them, so that no Node
    ever has them as allocatable."""
    return tuple(sorted(one for one in requested if one in provided or one.startswith(_PREFIX)))


class DeviceClasses:
    def __init__(self) -> None:
        self._resources: dict[str, str] = {}
        """The extended resource of each DeviceClass that names one."""

    def update(self, device_class: Mapping[str, Any], *, is_deleted: bool = False) -> set[str]:
        """The extended resources that the change concerns."""
        name = device_class["metadata"]["name"]
        old = self._resources.pop(name, None)
        new = None if is_deleted else extended_resource_of(device_class)
        if new:
            self._resources[name] = new
        return {one for one in (old, new) if one and old != new}

    def find_requested(self, requested: Iterable[str]) -> tuple[str, ...]:
        """The resources among these that DeviceClasses provide."""
        return select_dra_resources(requested, self._resources.values())

    def check_pod(self, pod: PodFact) -> PodFact:
        """The pod, unplannable if it requests a resource of a DeviceClass; plannable again if it no longer does.

        Another reason for which it is unplannable stays.
        """
        if pod.unplannable and not _ANY_REASON.fullmatch(pod.unplannable):
            return pod
        reason = self._reason_of(pod)
        return pod if reason == pod.unplannable else pod.model_copy(update={"unplannable": reason})

    def check_daemonset(self, daemonset: DaemonSetFact) -> DaemonSetFact:
        """The DaemonSet without requests for resources of DeviceClasses.

        Instance types do not show which nodes get such a device. Therefore its pods count on every node that they may
        run on, as pods with ResourceClaims do.
        """
        provided = set(self._resources.values())
        if provided.isdisjoint(daemonset.pod.requests):
            return daemonset
        requests = {name: amount for name, amount in daemonset.pod.requests.items() if name not in provided}
        return daemonset.model_copy(update={"pod": daemonset.pod.model_copy(update={"requests": requests})})

    def _reason_of(self, pod: PodFact) -> str:
        for name, resource in sorted(self._resources.items()):
            if pod.requests.get(resource):
                return _REASON.format(resource, name)
        return ""
