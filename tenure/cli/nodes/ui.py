"""`tenure ui`: links to the Temporal UI: lists of nodes and objects, and the page of a node."""

from typing import Annotated, Final
from urllib.parse import quote

import typer

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.stuck import NEEDING_ATTENTION, RUNNING
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from workflows import ids

VIEWS: Final = {
    "nodes": f"WorkflowType = 'NodeClaim' AND {RUNNING}",
    "need attention": NEEDING_ATTENTION,
    "starting": f"TenurePhase IN ('Launch', 'Registration', 'Initialization') AND {RUNNING}",
    "draining": f"TenurePhase = 'Drain' AND {RUNNING}",
    "paused": f"TenurePaused = true AND {RUNNING}",
    "disruption commands": f"WorkflowType = 'Disruption' AND {RUNNING}",
    "NodePools": f"WorkflowType = 'NodePool' AND {RUNNING}",
}
"""Visibility queries of the lists, without the condition on the cluster."""
COLUMNS: Final = ("TenurePhase", "TenureBlockedBy", "TenureDeadline")
COLUMNS_HINT: Final = (
    f"The browser stores the columns of the lists: add {', '.join(COLUMNS)} once under Configure Columns."
)
Name = Annotated[str, typer.Argument(help="NodeClaim, Node or instance: only the links to its pages.")]


@temporal_command
async def ui(connection: Connection, name: Name = "") -> Result:
    """Print links to the Temporal UI: lists of nodes by state, and the pages of the cluster; with a name, the page of a
    node."""
    if not connection.ui:
        raise UsageError(
            "--temporal-ui-url: required, set it or TEMPORAL_UI_URL, e.g. --temporal-ui-url https://temporal.example.com"
        )
    links = await _node_links(connection, name) if name else cluster_links(connection)
    width = max(map(len, links))
    lines = [f"{label:<{width}}  {url}" for label, url in links.items()]
    return Result(links, lines if name else [*lines, COLUMNS_HINT])


def cluster_links(connection: Connection) -> dict[str, str]:
    """URL by label."""
    cluster = connection.cluster
    base = f"{connection.ui.rstrip('/')}/namespaces/{connection.namespace}/workflows?query="
    own = f"WorkflowId STARTS_WITH '{cluster}/' AND "
    lists = {label: base + quote(own + query, safe="") for label, query in VIEWS.items()}
    pages = {
        "provisioning": ids.provisioning(cluster),
        "disruption": ids.cluster(cluster),
        "AWS events": ids.interruption(cluster),
    }
    return {**lists, **{label: connection.page_url(workflow_id) for label, workflow_id in pages.items()}}


async def _node_links(connection: Connection, name: str) -> dict[str, str]:
    visibility = NodeClaimVisibility(await connection.connect_to_cluster(), connection.cluster, connection.page_url)
    found = await visibility.find_by_names([name])
    if not found:
        raise UsageError(f"ui {name}: no NodeClaim, Node or instance of this name in cluster {connection.cluster}")
    return {one.name: one.url for one in found}
