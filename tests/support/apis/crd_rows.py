"""Rows of the accept/reject tables: a patch to a minimal object, and whether the API server accepts it."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]


class _Absent:
    """Its repr is the same in every process, since xdist compares test IDs."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()

NODEPOOL: Final[Object] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "table"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [],
            }
        }
    },
}
NODECLAIM: Final[Object] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "table"},
    "spec": deepcopy(NODEPOOL["spec"]["template"]["spec"]),
}
NODECLASS: Final[Object] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "table"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"discovery": "here"}}],
        "securityGroupSelectorTerms": [{"tags": {"discovery": "here"}}],
        "role": "nodes",
    },
}
NODEOVERLAY: Final[Object] = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "table"},
    "spec": {"requirements": []},
}
LIFECYCLEPOLICY: Final[Object] = {
    "apiVersion": "tenure.sh/v1alpha1",
    "kind": "LifecyclePolicy",
    "metadata": {"name": "table"},
    "spec": {},
}
CAPACITYBUFFER: Final[Object] = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "table"},
    "spec": {"podTemplateRef": {"name": "web"}, "replicas": 3},
}
BASES: Final = (NODEPOOL, NODECLAIM, NODECLASS, NODEOVERLAY, LIFECYCLEPOLICY, CAPACITYBUFFER)
"""A valid object of each kind."""
RESOURCES: Final = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "NodeOverlay": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "LifecyclePolicy": "/apis/tenure.sh/v1alpha1/lifecyclepolicies",
    "CapacityBuffer": "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers",
}


@dataclass(frozen=True)
class Row:
    """`rejection`: a part of the error message; empty if the object is accepted."""

    name: str
    patch: Mapping[str, Any]
    rejection: str = ""

    def __str__(self) -> str:
        return self.name


def accepts(name: str, **patch: Any) -> Row:
    return Row(f"accepts {name}", patch)


def rejects(name: str, rejection: str, **patch: Any) -> Row:
    assert rejection
    return Row(f"rejects {name}", patch, rejection)


class _RowLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Supports `!times [count, item]`, which repeats the item and replaces `#` by its number."""


def _construct_times(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> Any:
    count, item = loader.construct_sequence(node, deep=True)
    text = json.dumps(item)
    items = [json.loads(text.replace('"#"', str(number)).replace("#", str(number))) for number in range(count)]
    if isinstance(item, dict) and any("#" in key for key in item):
        return {key: value for one in items for key, value in one.items()}
    return items


_RowLoader.add_constructor("!times", _construct_times)


def load_table(path: Path) -> Object:
    table: Object = yaml.load(path.read_text(), _RowLoader)
    return table


def rows_of(table: Object) -> list[Row]:
    """The accepted and rejected rows of the table of one kind."""
    accepted = [accepts(name, **_patch_of(values)) for name, values in table["accepts"].items()]
    return accepted + [
        rejects(name, rejection, **_patch_of(values))
        for rejection, rows in table["rejects"].items()
        for name, values in rows.items()
    ]


def _patch_of(values: Object) -> Object:
    return {path.replace(".", "__"): ABSENT if value is None else value for path, value in values.items()}


def apply_patch(base: Object, patch: Mapping[str, Any]) -> Object:
    """`base` with values set at dotted paths below `spec`; ABSENT removes a field. In keywords, `__` stands for a
    dot.
    """
    result = deepcopy(base)
    for path, value in patch.items():
        *parents, last = ("spec__" + path).split("__") if path != "spec" else ["spec"]
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
        if value is ABSENT:
            target.pop(last, None)
        else:
            target[last] = deepcopy(value)
    return result
