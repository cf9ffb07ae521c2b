"""CapacityBuffer (`autoscaling.x-k8s.io/v1beta1`): room that is kept free for pods that are yet to come. Alpha.

The kind is shared with the cluster-autoscaler. `tenure/policy/capacity_buffer.py` says how much room a buffer asks for.
"""

from typing import Annotated, Final

from tenure.apis import labels
from tenure.apis.crd_schema import INT32, INT64, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, Quantities

ACTIVE: Final = "buffer.x-k8s.io/active-capacity"


class PodTemplateRef(KubeModel):
    """Names a PodTemplate in the buffer's namespace."""

    name: Annotated[str, Crd("Name of the PodTemplate.", {"minLength": 1}, required=True)] = ""


class ScalableRef(KubeModel):
    """Names a workload in the buffer's namespace."""

    api_group: Annotated[str, Crd("API group of the workload; apps, or empty for the same.")] = ""
    kind: Annotated[
        str, Crd("Kind of the workload: Deployment, StatefulSet or ReplicaSet.", {"minLength": 1}, required=True)
    ] = ""
    name: Annotated[str, Crd("Name of the workload.", {"minLength": 1}, required=True)] = ""


class CapacityBufferSpec(KubeModel):
    """How many pods of which shape there is to be room for."""

    provisioning_strategy: Annotated[
        str,
        Crd(f"How the room is kept; only {ACTIVE} is known here, by nodes that run.", {"default": ACTIVE}),
    ] = ACTIVE
    pod_template_ref: Annotated[
        PodTemplateRef | None, Crd("The PodTemplate of the pods; needs 'replicas' or 'limits'.")
    ] = None
    scalable_ref: Annotated[ScalableRef | None, Crd("The workload whose pods they are like.")] = None
    replicas: Annotated[int | None, Crd("For so many pods.", {**INT32, "minimum": 0})] = None
    percentage: Annotated[
        int | None,
        Crd(
            "For so many pods in a hundred of the workload's replicas, rounded up, at least one; of this and "
            "'replicas' the larger number counts.",
            {**INT32, "minimum": 0},
        ),
    ] = None
    limits: Annotated[
        Quantities,
        Crd("No more pods than ask for this together; alone: as many as do."),
    ] = {}


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


class CapacityBufferStatus(KubeModel):
    """What was found out about the buffer."""

    pod_template_ref: Annotated[PodTemplateRef | None, Crd("The PodTemplate that was found.")] = None
    replicas: Annotated[int | None, Crd("For how many pods there is to be room.", INT32)] = None
    pod_template_generation: Annotated[int | None, Crd("Generation of that PodTemplate.", INT64)] = None
    provisioning_strategy: Annotated[str | None, Crd("The strategy that is followed.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        Crd(
            "Whether it is known what to keep free, and whether it is free.",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class CapacityBuffer(KubeObject):
    """Room for pods that are yet to come, on nodes that run already."""

    api_version: str = labels.CAPACITYBUFFER_API_VERSION
    kind: str = "CapacityBuffer"
    spec: Annotated[CapacityBufferSpec, Crd(rules=SPEC_RULES, required=True)] = CapacityBufferSpec()
    status: Annotated[CapacityBufferStatus, Crd()] = CapacityBufferStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions
