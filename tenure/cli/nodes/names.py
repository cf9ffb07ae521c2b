"""`tenure names`: the names that shell completion offers. See `tenure/cli/completion.py`."""

import asyncio
from itertools import chain

from tenure.cli.completion import write_names
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from workflows import ids


@temporal_command
async def names(connection: Connection) -> Result:
    """List the names of running nodes and NodePools, and keep them for shell completion."""
    client, cluster = await connection.connect_to_cluster(), connection.cluster
    query = f"WorkflowType = 'NodePool' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"

    async def list_nodepools() -> list[str]:
        prefix = ids.nodepool(cluster, "")
        return sorted([one.id.removeprefix(prefix) async for one in client.list_workflows(query, page_size=1000)])

    found, nodepools = await asyncio.gather(NodeClaimVisibility(client, cluster).list_running(), list_nodepools())
    nodes = sorted(set(filter(None, chain.from_iterable((one.name, one.node_name) for one in found))))
    listed = {"nodes": nodes, "nodepools": nodepools}
    write_names(cluster, listed)
    return Result(listed, [*nodes, *nodepools])
