"""Nodes of one pod each, for what is measured beside nodes that stand."""

import sys
from functools import partial

from benchmarks.scale import node_pool
from cli.demo_acts import EXAMPLES, NAME
from cli.stage import Stage
from kube.resources import EC2_NODE_CLASSES, NODE_POOLS
from model import labels

ONE_POD_EACH = "m6i.large"
"""Of its two CPUs a pod of the example takes more than half."""


async def fill(stage: Stage, nodes: int) -> None:
    """So many nodes, of a pod each. Raises `Failed`."""
    pool = node_pool()
    one_type = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [ONE_POD_EACH]}
    pool["spec"]["template"]["spec"]["requirements"].append(one_type)
    await stage.apply(EXAMPLES / "ec2nodeclass.yaml", EXAMPLES / "deployment.yaml")
    await stage.kube.apply(pool)
    for kind in (EC2_NODE_CLASSES, NODE_POOLS):
        await stage.settled(partial(stage.ready, kind.path(NAME)), what=f"{kind.kind} Ready", seconds=60)
    print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
    await stage.scale(nodes)
    await stage.settled(partial(pods_wait, stage, nodes), what=f"{nodes} pods Running", seconds=120 + nodes)


async def pods_wait(stage: Stage, count: int) -> str:
    pods = stage.pods.count()
    return "" if pods.running == pods.total == count else str(pods)
