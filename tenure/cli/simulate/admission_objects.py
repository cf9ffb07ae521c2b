"""LimitRanges, RuntimeClasses and DeviceClasses of the files, applied to pods as by the API server and the worker.

A pod with a status is not changed, because an API server has admitted it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tenure.cli.simulate.manifests import Object, namespace_of
from tenure.cli.simulate.pod_admission import admit_pod_spec
from tenure.kube.facts.device_classes import DeviceClasses
from tenure.kube.facts.pod_admission import (
    PodAdmission,
    RuntimeClassDefaults,
    limit_range_rules,
    runtime_class_defaults,
)

ADMISSION_KINDS: Final = ("LimitRange", "RuntimeClass", "DeviceClass")


@dataclass
class AdmissionObjects:
    rules: PodAdmission = field(default_factory=PodAdmission)
    device_classes: DeviceClasses = field(default_factory=DeviceClasses)

    def add_object(self, one: Object) -> None:
        """Raises ValueError."""
        name = one["metadata"]["name"]
        if one["kind"] == "RuntimeClass":
            self.rules.set_runtime_class(name, runtime_class_defaults(one))
        elif one["kind"] == "DeviceClass":
            self.device_classes.update(one)
        else:
            self.rules.set_limit_range(namespace_of(one), name, limit_range_rules(one))

    def admit_pod(self, pod: Object) -> Object:
        """The spec of the pod. Raises ValueError."""
        spec = pod.get("spec", {})
        return admit_pod_spec(spec) if pod.get("status") else self.admit(spec, namespace_of(pod))

    def admit(self, spec: Any, namespace: str, where: str = "spec") -> Object:
        """Raises ValueError for a pod that an API server would reject without any LimitRange or RuntimeClass."""
        admitted = admit_pod_spec(spec, where)
        runtime_class = self.rules.get_runtime_class(str(admitted.get("runtimeClassName")))
        if runtime_class is not None:
            _check_runtime_class(admitted, runtime_class, where)
        admitted = dict(self.rules.apply_defaults(admitted, namespace))
        return admitted if self.rules.explain_rejection("", admitted, namespace) else admit_pod_spec(admitted, where)

    def missing_runtime_class(self, spec: Mapping[str, Any], where: str = "spec") -> str:
        """Names the RuntimeClass that no file has; empty if there is none."""
        name = spec.get("runtimeClassName")
        if not name or self.rules.get_runtime_class(name):
            return ""
        return f"{where}.runtimeClassName: {name!r}: no file has this RuntimeClass; add it to the files"


def _check_runtime_class(spec: Object, runtime_class: RuntimeClassDefaults, where: str) -> None:
    name, selector = spec["runtimeClassName"], runtime_class.node_selector
    if spec.get("overhead", runtime_class.overhead) != runtime_class.overhead:
        raise ValueError(f"{where}.overhead: {spec['overhead']!r}: differs from RuntimeClass {name}; leave it out")
    for key, value in spec.get("nodeSelector", {}).items():
        if value != selector.get(key, value):
            raise ValueError(
                f"{where}.nodeSelector.{key}: {value!r}: RuntimeClass {name} requires {selector[key]!r}; remove it"
            )
