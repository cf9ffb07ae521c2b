"""The kinds with a CRD: their models, names and columns for `kubectl get`.

`tools/generate.py` writes the CRDs and their reference pages.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.lifecyclepolicy import LifecyclePolicy
from tenure.apis.meta import KubeObject
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "crds"
_READY: Final = '.status.conditions[?(@.type=="Ready")].status'


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; priority 1 is shown only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def as_object(self) -> dict[str, Any]:
        column = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return column | ({"priority": self.priority} if self.priority else {})


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Kind:
    """One CRD: the model, its names and its columns."""

    model: type[KubeObject]
    plural: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scale: bool = False
    namespaced: bool = False
    category: str = "karpenter"
    also_served: tuple[str, ...] = ()
    """Older versions with the same schema; the version of the model is stored."""

    @property
    def name(self) -> str:
        return self.model.__name__

    @property
    def group(self) -> str:
        return self._api_version[0]

    @property
    def version(self) -> str:
        return self._api_version[2]

    @property
    def _api_version(self) -> tuple[str, str, str]:
        return str(self.model.model_fields["api_version"].default).partition("/")

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.group}_{self.plural}.yaml"


KINDS: Final = (
    Kind(
        NodePool,
        "nodepools",
        (
            Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            Column("Nodes", ".status.nodes"),
            Column("Ready", _READY),
            _AGE,
            Column("Weight", ".spec.weight", "integer", priority=1),
            Column("CPU", ".status.resources.cpu", priority=1),
            Column("Memory", ".status.resources.memory", priority=1),
        ),
        scale=True,
    ),
    Kind(
        NodeClaim,
        "nodeclaims",
        (
            Column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
            Column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
            Column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
            Column("Node", ".status.nodeName"),
            Column("Ready", _READY),
            _AGE,
            Column("ImageID", ".status.imageID", priority=1),
            Column("ID", ".status.providerID", priority=1),
            Column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", priority=1),
            Column("NodeClass", ".spec.nodeClassRef.name", priority=1),
            Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', priority=1),
        ),
    ),
    Kind(
        EC2NodeClass,
        "ec2nodeclasses",
        (Column("Ready", _READY), _AGE, Column("Role", ".spec.role", priority=1)),
        short_names=("ec2nc", "ec2ncs"),
    ),
    Kind(
        NodeOverlay,
        "nodeoverlays",
        (Column("Ready", _READY), _AGE, Column("Weight", ".spec.weight", "integer", priority=1)),
        short_names=("overlays",),
    ),
    Kind(
        LifecyclePolicy,
        "lifecyclepolicies",
        (Column("Ready", _READY), Column("NodePools", ".status.nodePools"), _AGE),
        category="tenure",
    ),
    Kind(
        CapacityBuffer,
        "capacitybuffers",
        (
            Column("Strategy", ".spec.provisioningStrategy"),
            Column("PodTemplate", ".status.podTemplateRef.name"),
            Column("Replicas", ".status.replicas", "integer"),
            Column("ConditionsType", ".status.conditions[*].type"),
            Column("ConditionsStatus", ".status.conditions[*].status"),
            Column("ConditionsReason", ".status.conditions[*].reason"),
            _AGE,
        ),
        short_names=("cb",),
        namespaced=True,
        category="autoscaling",
        also_served=("v1alpha1",),
    ),
)
