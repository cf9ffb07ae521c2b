"""`tenure ui`: a page of the cluster, and links to the Temporal UI: lists, and the page of a node."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import quote

import typer

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.stuck import NEEDING_ATTENTION, RUNNING
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import DATA_FORMATS, Output, Result
from tenure.cli.page.sections import cluster_sections
from tenure.cli.page.server import SectionFeed, accepted_host_names, make_application, serving
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
Name = Annotated[str, typer.Argument(help="NodeClaim, Node or instance: only print the links to its pages.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 chooses a free one.")]
Listen = Annotated[str, typer.Option("--listen", help="IP address of the page. It has no authentication.")]
Links = Annotated[bool, typer.Option("--links", help="Only print the links.")]


@temporal_command
async def ui(
    connection: Connection,
    name: Name = "",
    port: Port = 8080,
    listen: Listen = "127.0.0.1",
    links: Links = False,
    output: Output = "table",
) -> Result:
    """Serve a read-only web page of the cluster until Ctrl-C: nodes, pending pods, disruption and AWS events. Print
    links to the Temporal UI; with a name, --links or --output json, do not serve the page."""
    is_served = not (name or links or output in DATA_FORMATS)
    if not connection.ui and not is_served:
        raise UsageError(
            "--temporal-ui-url: required, set it or TEMPORAL_UI_URL, e.g. --temporal-ui-url https://temporal.example.com"
        )
    if is_served:
        await _serve_page(connection, listen, port)
    found = await _node_links(connection, name) if name else cluster_links(connection)
    lines = _format_links(found)
    return Result(found, lines if name else [*lines, COLUMNS_HINT])


async def _serve_page(connection: Connection, listen: str, port: int) -> None:
    """Until cancelled. Raises `UsageError` for an address that cannot be used."""
    try:
        host_names = accepted_host_names(listen)
    except ValueError:
        raise UsageError(f"--listen: invalid address {listen!r}, expected an IP address, e.g. 127.0.0.1") from None
    client = await connection.connect_to_cluster()
    feed = SectionFeed(cluster_sections(client, connection))
    application = make_application(feed, connection.cluster, host_names=host_names)
    try:
        async with serving(application, feed, listen, port) as used_port:
            for line in _format_links(cluster_links(connection) if connection.ui else {}):
                typer.echo(line)
            host = f"[{listen}]" if ":" in listen else listen
            typer.echo(f"Page of cluster {connection.cluster}: http://{host}:{used_port}/ (Ctrl-C ends it)")
            if host_names is None:
                typer.echo("The page has no authentication: anyone who reaches this address can read it.", err=True)
            await asyncio.Event().wait()
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror or error}; choose another, e.g. --port 0") from error


def _format_links(links: Mapping[str, str]) -> list[str]:
    width = max(map(len, links), default=0)
    return [f"{label:<{width}}  {url}" for label, url in links.items()]


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
