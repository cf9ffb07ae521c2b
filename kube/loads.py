"""What nodes carry, for a static pool that has too many of them. Satisfies `activities.replica_ports.Loads`."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from kube.client import KubeClient
from kube.drain import protected, reschedulable
from kube.errors import Json
from kube.pod_facts import pod_fact
from kube.resources import PODS
from model.replicas import MovedPod, NodeLoad

AT_ONCE: Final = 16


class KubeLoads:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists, one for each node."""
        room = asyncio.Semaphore(AT_ONCE)

        async def on_node(name: str) -> NodeLoad:
            async with room:
                answer = await self._client.request(
                    "GET", PODS.path(), params={"fieldSelector": f"spec.nodeName={name}"}
                )
            return node_load(answer.get("items") or (), now)

        return dict(zip(names, await asyncio.gather(*(on_node(name) for name in names)), strict=True))


def node_load(pods: Collection[Json], now: datetime) -> NodeLoad:
    """Of the pods on one node; those of DaemonSets can protect it, and do not need another place."""
    moved, held = [], False
    for pod in pods:
        try:
            fact = pod_fact(pod)
        except (ValueError, KeyError):
            # It may be anything, so its node goes with the last.
            held = True
            continue
        if not fact.finished and not fact.deleting:
            held = held or protected(fact.do_not_disrupt, fact.started, now)
        if reschedulable(fact):
            moved.append(MovedPod(priority=fact.priority, deletion_cost=fact.deletion_cost))
    return NodeLoad(moved=tuple(moved), protected=held)
