"""Deployments of controllers: what one is told by its environment, how many run, and scaling to zero and back.

For `tenure adopt`, with a person's rights: the worker's own role may not change Deployments.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kube.client import KubeClient
from kube.errors import Json
from kube.objects import Objects
from kube.resources import WORKLOADS
from model.base import Value
from model.labels import REPLICAS_BEFORE

_NAME_LABEL: Final = "app.kubernetes.io/name"


class Deployed(Value):
    """A Deployment, as one sees from outside what its controller does."""

    namespace: str
    name: str
    replicas: int
    """Asked for."""
    running: int = 0
    before: int = 0
    """How many were asked for when it was scaled to zero; 0 where nobody wrote that down."""
    image: str = ""
    environment: dict[str, str] = {}
    """By variable, what flags say in its stead first: those win with Karpenter."""
    elsewhere: tuple[str, ...] = ()
    """Variables whose value stands in another object, and objects that hold some."""

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


class KubeDeployments:
    """Raises model.faults."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> Deployed | None:
        found = await self._client.get(WORKLOADS["Deployment"].path(name, namespace=namespace))
        return deployed(found) if found else None

    async def called(self, name: str) -> Sequence[Deployed]:
        """In any namespace, by the label that Helm charts put on."""
        found = await Objects(self._client, WORKLOADS["Deployment"]).list({_NAME_LABEL: name})
        return [deployed(one) for one in found]

    async def stop(self, namespace: str, name: str) -> bool:
        """Scale to zero, and write down how many there were. False when it is gone."""

        def stopped(item: Json) -> Json | None:
            replicas = item["spec"].get("replicas", 1)
            if not replicas:
                return None
            return {"metadata": {"annotations": {REPLICAS_BEFORE: str(replicas)}}, "spec": {"replicas": 0}}

        return await self._objects(namespace).change(name, stopped) is not None

    async def start(self, namespace: str, name: str, *, otherwise: int) -> bool:
        """As many as there were, or `otherwise` where nobody knows; one that runs is left alone. False when gone."""

        def started(item: Json) -> Json | None:
            if item["spec"].get("replicas", 1):
                return None
            before = deployed(item).before or otherwise
            return {"metadata": {"annotations": {REPLICAS_BEFORE: None}}, "spec": {"replicas": before}}

        return await self._objects(namespace).change(name, started) is not None

    def _objects(self, namespace: str) -> Objects:
        return Objects(self._client, WORKLOADS["Deployment"], namespace)


def deployed(deployment: Json) -> Deployed:
    metadata, spec = deployment["metadata"], deployment["spec"]
    containers = spec["template"]["spec"].get("containers") or [{}]
    first = next((one for one in containers if one.get("name") == "controller"), containers[0])
    variables = first.get("env") or ()
    said = {one["name"]: str(one.get("value", "")) for one in variables if "valueFrom" not in one}
    before = (metadata.get("annotations") or {}).get(REPLICAS_BEFORE, "")
    return Deployed(
        namespace=metadata["namespace"],
        name=metadata["name"],
        replicas=spec.get("replicas", 1),
        running=(deployment.get("status") or {}).get("replicas", 0),
        before=int(before) if before.isdecimal() else 0,
        image=first.get("image", ""),
        environment=said | _flags([*(first.get("command") or ()), *(first.get("args") or ())]),
        elsewhere=(
            *(one["name"] for one in variables if "valueFrom" in one),
            *(_source(one) for one in first.get("envFrom") or ()),
        ),
    )


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--batch-idle-duration=2s` as the variable of that name; a flag by itself is a switch."""
    found: dict[str, str] = {}
    for number, one in enumerate(arguments):
        if not one.startswith("-"):
            continue
        flag, given, value = one.lstrip("-").partition("=")
        after = arguments[number + 1] if number + 1 < len(arguments) else "-"
        if not given:
            value = "true" if after.startswith("-") else after
        found[flag.upper().replace("-", "_")] = value
    return found


def _source(one: Mapping[str, Any]) -> str:
    kind = next((key for key in ("configMapRef", "secretRef") if key in one), "")
    return f"{'Secret' if kind == 'secretRef' else 'ConfigMap'} {one.get(kind, {}).get('name', '')}"
