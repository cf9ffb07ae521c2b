"""Writes what is said elsewhere: `python -m deploy.generate`. The CRDs of `deploy/crds` come from the models, parts of
the Helm charts from what `deploy/helm.py` names, docs/reference, the dashboard and the picture from the code.

With `--check` nothing is written, and the exit code is 1 if a file is not what its source says.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy import dashboard, helm, picture
from deploy.pages import pages
from deploy.schema import root_schema
from model.kinds import CapacityBuffer, EC2NodeClass, KubeObject, LifecyclePolicy, NodeClaim, NodeOverlay, NodePool

FOLDER = Path(__file__).parent / "crds"
_HEADER = "# Written by `python -m deploy.generate` from model/kinds: change the models, not this file.\n"
_READY = '.status.conditions[?(@.type=="Ready")].status'


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` shows; priority 1 is shown with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def as_object(self) -> dict[str, Any]:
        column = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return column | ({"priority": self.priority} if self.priority else {})


_AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Kind:
    """One CRD: the model, its names, and how it is shown."""

    model: type[KubeObject]
    plural: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scale: bool = False
    namespaced: bool = False
    category: str = "karpenter"
    also_served: tuple[str, ...] = ()
    """Older versions with the same schema; the model's is stored."""

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


KINDS = (
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


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": _names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, name) for name in (kind.version, *kind.also_served)],
        },
    }


def _version(kind: Kind, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": name == kind.version,
        "schema": {"openAPIV3Schema": root_schema(kind.model)},
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [column.as_object() for column in kind.columns],
    }


def text_of(kind: Kind) -> str:
    """The CRD's file."""
    return _HEADER + yaml.dump(crd(kind), Dumper=_NoAliases, width=110, allow_unicode=True)


def files() -> dict[Path, str]:
    """What each written file holds."""
    crds = {kind.file: text_of(kind) for kind in KINDS}
    charts = helm.files({path.name: text for path, text in crds.items()})
    return {**crds, **charts, **pages(), **{one.FILE: one.text() for one in (dashboard, picture)}}


def outdated() -> list[Path]:
    """Files that are missing, differ from what their source says, or have none any more."""
    wrong = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    return wrong + helm.strays({kind.file.name: "" for kind in KINDS})


def write() -> None:
    """Write all files, and remove those that have no source any more."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in helm.strays({kind.file.name: "" for kind in KINDS}):
        path.unlink()


def _names(kind: Kind) -> dict[str, Any]:
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "categories": [kind.category],
    }
    return names | ({"shortNames": list(kind.short_names)} if kind.short_names else {})


def _subresources(kind: Kind) -> dict[str, Any]:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
    return {"status": {}} | ({"scale": scale} if kind.scale else {})


class _NoAliases(yaml.SafeDumper):
    """Writes equal parts out in full: not every reader of CRDs follows YAML's anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        write()
        return 0
    for path in outdated():
        print(f"{path.name} is not what its source says: run python -m deploy.generate", file=sys.stderr)
    return 1 if outdated() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
