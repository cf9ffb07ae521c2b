"""Namespaces: only the worker's own is ever changed, which carries a pause of the whole cluster.

Satisfies `activities.pauses.Annotated`.
"""

from collections.abc import Mapping

from kube.client import KubeClient
from kube.objects import Objects
from kube.patches import annotate
from kube.resources import NAMESPACES


class KubeNamespaces:
    def __init__(self, client: KubeClient) -> None:
        self._namespaces = Objects(client, NAMESPACES)

    async def annotate(
        self,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        only: Mapping[str, str] | None = None,
    ) -> str:
        return await annotate(self._namespaces, name, annotations, uid=uid, only=only)
