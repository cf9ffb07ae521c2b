"""`python -m tools.screenshots`: take the pictures of Temporal's UI that docs/temporal-ui.md shows.

The clock of the pictures is this machine's, so each taking is another set of files; what they show is the same.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from benchmarks.harness import benchmark, in_sandbox, run
from tenure.cli.exit_codes import Failed, Refused, leave
from tenure.cli.nodes.workflows import NodeLife
from tenure.cli.sandbox.environment import Stage
from tenure.sandbox.environment import Sandbox
from tools.docs.reference import QUERIES
from tools.screenshots import scene
from tools.screenshots.browser import Browser, BrowserFault, NoBrowser, find
from workflows import ids

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
COLUMNS: Final = ("Status", "Workflow ID", "TenurePhase", "TenureBlockedBy")
PAGE, DIALOG = "#content", "dialog[open]"
"""By CSS: the page without its menu and its head, and what is open before it."""
SETTLES: Final = 1.0
"""Seconds that menus and dialogs take to unfold."""
WIDTH: Final = 1280
LARGEST: Final = 150_000
"""Bytes of a picture."""
PAUSE: Final = {"by": "ann@example.com", "reason": "training run 812", "until": "2030-06-01T18:00:00Z"}
app = benchmark()


class Album:
    def __init__(self, browser: Browser, stage: Stage, folder: Path) -> None:
        self._browser, self._stage, self._folder = browser, stage, folder
        self._base = f"{stage.sandbox.temporal_ui}/namespaces/{stage.sandbox.plan.namespace}/workflows"

    async def node(self, name: str, life: NodeLife, *texts: str, height: int) -> None:
        """What the workflow of a node says of itself."""
        await self._browser.size(WIDTH, height)
        await self._browser.open(f"{await self._run(life.workflow_id)}/user-metadata")
        await self._browser.shows("Current Details", "How it came here", *texts)
        await self._take(name)

    async def view(self, name: str, what: str, *texts: str, height: int) -> None:
        """A saved view: the query of that name in the documents, with the columns that tell most."""
        query = dict(QUERIES)[what]
        namespace = self._stage.sandbox.plan.namespace
        columns = [{"label": one, "pinned": number < 2} for number, one in enumerate(COLUMNS)]
        saved = {"id": name, "name": what, "query": query, "icon": "bookmark", "type": "user"}
        await self._browser.keep("namespace-workflow-table-columns", {namespace: columns})
        await self._browser.keep("saved-namespace-queries", {namespace: [saved]})
        await self._browser.size(WIDTH, height)
        await self._browser.open(f"{self._base}?query={quote(query)}&savedQuery={name}")
        await self._browser.shows("TenureBlockedBy", *texts)
        await self._take(name)

    async def pause(self, listed: str, filled: str, pool: str, *, height: int) -> None:
        """The updates of a NodePool with what they are for; then one is sent, and taken."""
        browser, workflow_id = self._browser, ids.nodepool(scene.CLUSTER, pool)
        await browser.size(WIDTH, height)
        await browser.open(f"{await self._run(workflow_id)}/user-metadata")
        await browser.shows("Current Details", "Permits")
        await browser.press("More Actions")
        await browser.press("Send an Update")
        await browser.press(within="[data-testid=update-select-button]")
        await browser.shows("Let voluntary disruption go on")
        await self._take(listed, DIALOG)
        await browser.press("pause")
        await browser.write(json.dumps(PAUSE), into="dialog[open] .cm-content")
        await browser.shows("training run 812")
        await self._take(filled, DIALOG)
        await browser.press("Submit")
        handle = self._stage.temporal.get_workflow_handle(workflow_id)

        async def held() -> str:
            return "" if await handle.query("pauses", result_type=list[str]) else f"NodePool {pool} is not paused"

        await self._stage.settled(held, what="the pause that was sent by the UI", seconds=30)

    async def _run(self, workflow_id: str) -> str:
        """The page of its run that is open."""
        found = await self._stage.temporal.get_workflow_handle(workflow_id).describe()
        return f"{self._base}/{quote(workflow_id, safe='')}/{found.run_id}"

    async def _take(self, name: str, css: str = PAGE) -> None:
        await asyncio.sleep(SETTLES)
        file, place = self._folder / f"{name}.png", await self._browser.place(css)
        picture = await self._browser.shoot(**place)
        if len(picture) > LARGEST:
            raise Failed(f"{file}: {len(picture)} bytes, which is more than {LARGEST}; take less of the page")
        await asyncio.to_thread(file.write_bytes, picture)
        typer.echo(f"{file.name}: {len(picture) // 1000} kB")


async def take(sandbox: Sandbox, program: str, folder: Path) -> None:
    async with Stage(sandbox, deployment=scene.DEPLOYMENT) as stage:
        nodes = await scene.played(stage)
        for what, number in (await scene.asked(stage)).items():
            typer.echo(f"{what}: {number}")
        try:
            async with Browser(program) as browser:
                await browser.open(stage.sandbox.temporal_ui)
                await browser.shows("Workflows")
                album = Album(browser, stage, folder)
                await album.node("node-draining", nodes.draining, "Blocked by", "default/shop", height=980)
                await album.node("node-starting", nodes.starting, "Blocked by", scene.TAINT, height=940)
                await album.node("node-ready", nodes.ready, "Waits for", height=940)
                await album.view("view-overdue", "nodes that are overdue", nodes.draining.name, height=480)
                await album.view("view-pool", "nodes of a NodePool", nodes.ready.name, height=480)
                await album.pause("updates", "update-pause", "general", height=800)
        except BrowserFault as fault:
            raise Failed(str(fault)) from fault


@app.command()
def pictures(
    chromium: Annotated[str, typer.Option(envvar="CHROMIUM", help="Its program, where it is not found by name.")] = "",
    folder: Annotated[Path, typer.Option(help="Where they are written.")] = FOLDER,
) -> None:
    """Take the pictures anew."""
    try:
        program = find(chromium)
    except NoBrowser as absent:
        raise Refused(f"pictures: {absent}") from absent
    folder.mkdir(parents=True, exist_ok=True)
    in_sandbox(scene.plan(), lambda sandbox: take(sandbox, program, folder))


if __name__ == "__main__":
    leave(run(app, "pictures"))
