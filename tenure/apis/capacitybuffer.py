"""CapacityBuffer (`autoscaling.x-k8s.io/v1beta1`): room that is kept free for pods that are yet to come. Alpha.

The kind is shared with the cluster-autoscaler. `tenure/policy/capacity_buffer.py` says how much room a buffer asks for.
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
    """API group of the workload; apps, or empty for the same."""
    kind: Annotated[str, Crd({"minLength": 1}, required=True)] = ""
    """Kind of the workload: Deployment, StatefulSet or ReplicaSet."""
    name: Annotated[str, Crd({"minLength": 1}, required=True)] = ""
    """Name of the workload."""


class CapacityBufferSpec(KubeModel):
    """How many pods of which shape there is to be room for."""

    provisioning_strategy: Annotated[
        str, Crd({"default": ACTIVE}, doc=f"How the room is kept; only {ACTIVE} is known here, by nodes that run.")
    ] = ACTIVE
    pod_template_ref: PodTemplateRef | None = None
    """The PodTemplate of the pods; needs 'replicas' or 'limits'."""
    scalable_ref: ScalableRef | None = None
    """The workload whose pods they are like."""
    replicas: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """For so many pods."""
    percentage: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """For so many pods in a hundred of the workload's replicas, rounded up, at least one; of this and 'replicas' the
    larger number counts."""
    limits: Quantities = {}
    """No more pods than ask for this together; alone: as many as do."""


SPEC_RULES: Final = (
    Rule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "with 'podTemplateRef' nothing says how many pods: add 'replicas' or 'limits'",
    ),
    Rule(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "the pods are like one thing: remove 'podTemplateRef' or 'scalableRef'",
    ),
)


class CapacityBufferStatus(KubeStatus):
    """Observed state of the buffer."""

    pod_template_ref: PodTemplateRef | None = None
    """The PodTemplate that was found."""
    replicas: Annotated[int | None, Crd(INT32)] = None
    """For how many pods there is to be room."""
    pod_template_generation: Annotated[int | None, Crd(INT64)] = None
    """Generation of that PodTemplate."""
    provisioning_strategy: str | None = None
    """The strategy that is followed."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE)] = ()
    """Whether the buffer's size is resolved, and whether its capacity is available."""


class CapacityBuffer(KubeObject):
    """Room for pods that are yet to come, on nodes that run already."""

    api_version: str = labels.CAPACITYBUFFER_API_VERSION
    kind: str = "CapacityBuffer"
    spec: Annotated[CapacityBufferSpec, Crd(rules=SPEC_RULES, required=True)] = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
