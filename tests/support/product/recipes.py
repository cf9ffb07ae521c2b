"""Manifests of `examples/recipes`, changed so that tests with one cluster do not affect each other."""

from typing import Any

import yaml

from tenure.apis import labels
from tests.support.paths import ROOT
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.objects import NODE_CLASS, Object

RECIPES = ROOT / "examples" / "recipes"


def load_recipe(path: str) -> list[Object]:
    """Objects of a file below `examples/recipes`."""
    return [*yaml.safe_load_all((RECIPES / path).read_text())]


def load_for_scope(path: str, scope: ClusterScope) -> list[Object]:
    """Objects of a recipe. NodePools and LifecyclePolicies have the scope's name and select its NodePool and the shared
    EC2NodeClass. Pods run in this NodePool.
    """
    return [_move_to_scope(one, scope.name) for one in load_recipe(path)]


async def apply_recipe(path: str, scope: ClusterScope) -> None:
    """A NodePool of the recipe replaces that of the scope."""
    for one in load_for_scope(path, scope):
        await scope.apply_manifest(one)


def _move_to_scope(found: Object, name: str) -> Object:
    spec: dict[str, Any] = found.get("spec", {})
    match found["kind"]:
        case "NodePool":
            spec["template"]["spec"]["nodeClassRef"]["name"] = NODE_CLASS
            found["metadata"]["name"] = name
        case "LifecyclePolicy":
            spec["nodePoolSelector"] = {"names": [name]}
            found["metadata"]["name"] = name
        case "Deployment" | "StatefulSet":
            spec["template"]["spec"]["nodeSelector"] = {labels.NODEPOOL: name}
    return found
