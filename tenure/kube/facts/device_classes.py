"""Extended resources that DeviceClasses provide by Dynamic Resource Allocation, which Tenure does not plan."""

from typing import Final

from tenure.controller.cache.dirty import set_or_remove
from tenure.kube.client.list_watch import Delta
from tenure.model.facts import PodFact

_REASON: Final = "provides this resource by Dynamic Resource Allocation, which is not supported"


class DeviceClasses:
    def __init__(self) -> None:
        self._resources: dict[str, str] = {}
        """The extended resource of each DeviceClass that names one."""

    def update(self, delta: Delta) -> set[str]:
        """The extended resources that the change concerns."""
        name = delta.object["metadata"]["name"]
        old = self._resources.get(name)
        new = None if delta.is_deleted else (delta.object.get("spec") or {}).get("extendedResourceName")
        set_or_remove(self._resources, name, new)
        return {one for one in (old, new) if one and old != new}

    def check_pod(self, pod: PodFact) -> PodFact:
        """The pod, unplannable if it requests a resource of a DeviceClass; plannable again if it no longer does.

        Another reason for which it is unplannable stays.
        """
        if not self._resources and not pod.unplannable:
            return pod
        if pod.unplannable and not pod.unplannable.endswith(_REASON):
            return pod
        reason = next(
            (
                f"spec.containers[].resources.requests[{resource}]: DeviceClass {name} {_REASON}"
                for name, resource in sorted(self._resources.items())
                if pod.requests.get(resource)
            ),
            "",
        )
        return pod if reason == pod.unplannable else pod.model_copy(update={"unplannable": reason})
