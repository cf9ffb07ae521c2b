"""CapacityBuffer (`autoscaling.x-k8s.io/v1beta1`): spare capacity for pods that do not exist yet. Alpha.

The kind is shared with the cluster-autoscaler. `tenure/policy/capacity_buffer.py` computes the size of a buffer.
"""

from typing import Annotated, Final

from tenure.apis import labels
from tenure.apis.crd_schema import BY_TYPE, INT32, INT64, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, Quantities

ACTIVE: Final = "buffer.x-k8s.io/active-capacity"


class PodTemplateRef(KubeModel):
    """Names a PodTemplate in the buffer's namespace."""

    name: Annotated[str, Crd({"minLength": 1}, required=True)] = ""
    """Name of the PodTemplate."""


class ScalableRef(KubeModel):
    """Names a workload in the buffer's namespace."""

    api_group: str = ""
    """API group of the workload: apps. Empty means apps."""
    kind: Annotated[str, Crd({"minLength": 1}, required=True)] = ""
    """Kind of the workload: Deployment, StatefulSet or ReplicaSet."""
    name: Annotated[str, Crd({"minLength": 1}, required=True)] = ""
    """Name of the workload."""


class CapacityBufferSpec(KubeModel):
    """Number and shape of the pods to keep capacity for."""

    provisioning_strategy: Annotated[
        str, Crd({"default": ACTIVE}, doc=f"How capacity is provided. Tenure supports only {ACTIVE}: running nodes.")
    ] = ACTIVE
    pod_template_ref: PodTemplateRef | None = None
    """The PodTemplate of the pods; needs 'replicas' or 'limits'."""
    scalable_ref: ScalableRef | None = None
    """The workload whose pod template is used."""
    replicas: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """Number of pods."""
    percentage: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """Percentage of the workload's replicas, rounded up, at least one pod. If 'replicas' is set too, the larger number
    applies."""
    limits: Quantities = {}
    """Limits of the pods' total requests. Without 'replicas' and 'percentage': as many pods as fit."""


SPEC_RULES: Final = (
    Rule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "podTemplateRef: the number of pods is not set, add 'replicas' or 'limits'",
    ),
    Rule(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "'podTemplateRef' and 'scalableRef' are mutually exclusive: remove 'podTemplateRef' or 'scalableRef'",
    ),
)


class CapacityBufferStatus(KubeStatus):
    """Observed state of the buffer."""

    pod_template_ref: PodTemplateRef | None = None
    """The resolved PodTemplate."""
    replicas: Annotated[int | None, Crd(INT32)] = None
    """Number of pods to keep capacity for."""
    pod_template_generation: Annotated[int | None, Crd(INT64)] = None
    """Generation of the resolved PodTemplate."""
    provisioning_strategy: str | None = None
    """The strategy in use."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE)] = ()
    """Whether the buffer's size is resolved, and whether its capacity is available."""


class CapacityBuffer(KubeObject):
    """Spare capacity on running nodes for pods that do not exist yet."""

    api_version: str = labels.CAPACITYBUFFER_API_VERSION
    kind: str = "CapacityBuffer"
    spec: Annotated[CapacityBufferSpec, Crd(rules=SPEC_RULES, required=True)] = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
