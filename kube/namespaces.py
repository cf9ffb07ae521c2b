"""Namespaces: only the worker's own is ever changed, which carries a pause of the whole cluster.

Satisfies `activities.pauses.Annotated`.
"""

from kube.client import KubeClient
from kube.objects import Objects
from kube.patches import Annotating
from kube.resources import NAMESPACES


class KubeNamespaces(Annotating):
    def __init__(self, client: KubeClient) -> None:
        super().__init__(Objects(client, NAMESPACES))
