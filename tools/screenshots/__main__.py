"""`python -m tools.screenshots`: take the screenshots of Temporal's UI and of the cluster page for the docs.

They show the time of this machine, so each run writes different files with the same content otherwise.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from tenure.cli.exit_codes import CommandFailed, UsageError, exit_process
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.page.sections import cluster_sections
from tenure.cli.page.server import SectionFeed, accepted_host_names, make_application, serving
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.temporal_client import Connection
from tenure.sandbox.environment import Sandbox
from tools.docs.reference import QUERIES
from tools.screenshots import scene
from tools.screenshots.browser import Browser, BrowserFault, NoBrowser, find_chromium
from workflows import ids

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
COLUMNS: Final = ("Status", "Workflow ID", "TenurePhase", "TenureBlockedBy")
PAGE, DIALOG = "#content", "dialog[open]"
"""CSS selectors: the page without menu and header, and the open dialog."""
SETTLES: Final = 1.0
"""Seconds until menus and dialogs are fully open."""
WIDTH: Final = 1280
LARGEST: Final = 165_000
"""Maximum bytes of a screenshot."""
PAUSE: Final = {"by": "ann@example.com", "reason": "training run 812", "until": "2030-06-01T18:00:00Z"}
app = benchmark_app()


class Album:
    def __init__(self, browser: Browser, session: SandboxSession, folder: Path) -> None:
        self._browser, self._session, self._folder = browser, session, folder
        self._base = f"{session.sandbox.temporal_ui}/namespaces/{session.sandbox.plan.namespace}/workflows"

    async def capture_node(self, name: str, nodeclaim: NodeClaimSummary, *texts: str, height: int) -> None:
        """Capture the details of a NodeClaim workflow."""
        await self._browser.size(WIDTH, height)
        await self._browser.open(f"{await self._run_url(nodeclaim.workflow_id)}/user-metadata")
        await self._browser.wait_for_text("Current Details", "Phase history", *texts)
        await self._capture(name)

    async def capture_view(self, name: str, what: str, *texts: str, height: int) -> None:
        """Capture a saved view with the documented query of that name."""
        query = dict(QUERIES)[what]
        namespace = self._session.sandbox.plan.namespace
        columns = [{"label": one, "pinned": number < 2} for number, one in enumerate(COLUMNS)]
        saved = {"id": name, "name": what, "query": query, "icon": "bookmark", "type": "user"}
        await self._browser.store_local("namespace-workflow-table-columns", {namespace: columns})
        await self._browser.store_local("saved-namespace-queries", {namespace: [saved]})
        await self._browser.size(WIDTH, height)
        await self._browser.open(f"{self._base}?query={quote(query)}&savedQuery={name}")
        await self._browser.wait_for_text("TenureBlockedBy", *texts)
        await self._capture(name)

    async def capture_pause(self, listed: str, filled: str, pool: str, *, height: int) -> None:
        """Capture the list of updates of a NodePool, then a filled-in pause, which is sent."""
        browser, workflow_id = self._browser, ids.nodepool(scene.CLUSTER, pool)
        await browser.size(WIDTH, height)
        await browser.open(f"{await self._run_url(workflow_id)}/user-metadata")
        await browser.wait_for_text("Current Details", "Permits")
        await browser.click("More Actions")
        await browser.click("Send an Update")
        await browser.click(within="[data-testid=update-select-button]")
        await browser.wait_for_text("Resume voluntary disruption")
        await self._capture(listed, DIALOG)
        await browser.click("pause")
        await browser.write(json.dumps(PAUSE), into="dialog[open] .cm-content")
        await browser.wait_for_text("training run 812")
        await self._capture(filled, DIALOG)
        await browser.click("Submit")
        handle = self._session.temporal.get_workflow_handle(workflow_id)

        async def why_not_paused() -> str:
            return "" if await handle.query("pauses", result_type=list[str]) else f"NodePool {pool} is not paused"

        await self._session.wait_until_resolved(why_not_paused, what="the pause sent from the UI", seconds=30)

    async def capture_cluster_page(self, name: str, *texts: str, height: int) -> None:
        """Capture the page that `tenure ui` serves."""
        sandbox = self._session.sandbox
        connection = Connection(sandbox.temporal_address, sandbox.plan.namespace, scene.CLUSTER, ui=sandbox.temporal_ui)
        feed = SectionFeed(cluster_sections(self._session.temporal, connection))
        application = make_application(feed, scene.CLUSTER, host_names=accepted_host_names("127.0.0.1"))
        async with serving(application, feed, "127.0.0.1", 0) as port:
            await self._browser.size(WIDTH, height)
            await self._browser.open(f"http://127.0.0.1:{port}/")
            await self._browser.wait_for_text(*texts)
            await self._capture(name, "body")
            await self._browser.open("about:blank")

    async def _run_url(self, workflow_id: str) -> str:
        """The URL of the current run."""
        found = await self._session.temporal.get_workflow_handle(workflow_id).describe()
        return f"{self._base}/{quote(workflow_id, safe='')}/{found.run_id}"

    async def _capture(self, name: str, css: str = PAGE) -> None:
        await asyncio.sleep(SETTLES)
        file, box = self._folder / f"{name}.png", await self._browser.bounding_box(css)
        picture = await self._browser.capture_screenshot(**box)
        if len(picture) > LARGEST:
            raise CommandFailed(
                f"{file}: {len(picture)} bytes, at most {LARGEST} are allowed; capture less of the page"
            )
        await asyncio.to_thread(file.write_bytes, picture)
        typer.echo(f"{file.name}: {len(picture) // 1000} kB")


async def capture_all(sandbox: Sandbox, program: str, folder: Path) -> None:
    async with SandboxSession(sandbox, deployment=scene.DEPLOYMENT) as session:
        nodes = await scene.prepare_nodes(session)
        for what, number in (await scene.count_query_matches(session)).items():
            typer.echo(f"{what}: {number}")
        try:
            async with Browser(program) as browser:
                await browser.open(session.sandbox.temporal_ui)
                await browser.wait_for_text("Workflows")
                album = Album(browser, session, folder)
                await album.capture_cluster_page(
                    "cluster-page", nodes.draining.name, "Drain overdue", "eligible", "No AWS events", height=1180
                )
                await album.capture_node("node-draining", nodes.draining, "Blocked by", "default/shop", height=900)
                await album.capture_node("node-starting", nodes.starting, "Blocked by", scene.TAINT, height=940)
                await album.capture_node("node-ready", nodes.ready, "Waits for", height=940)
                await album.capture_view("view-overdue", "overdue nodes", nodes.draining.name, height=480)
                await album.capture_view("view-pool", "nodes of a NodePool", nodes.ready.name, height=480)
                await album.capture_pause("updates", "update-pause", "general", height=800)
        except BrowserFault as fault:
            raise CommandFailed(str(fault)) from fault


@app.command()
def pictures(
    chromium: Annotated[str, typer.Option(envvar="CHROMIUM", help="Path of Chromium, if it is not on the PATH.")] = "",
    folder: Annotated[Path, typer.Option(help="Output folder.")] = FOLDER,
) -> None:
    """Take the screenshots of the Temporal UI."""
    try:
        program = find_chromium(chromium)
    except NoBrowser as absent:
        raise UsageError(f"pictures: {absent}") from absent
    folder.mkdir(parents=True, exist_ok=True)
    in_sandbox(scene.plan(), lambda sandbox: capture_all(sandbox, program, folder))


if __name__ == "__main__":
    exit_process(run(app, "pictures"))
