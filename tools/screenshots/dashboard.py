"""`python -m tools.screenshots.dashboard`: draw the first rows of the Grafana dashboard, for the docs.

The panels, queries and legends are those of deploy/dashboards/tenure.json, and the data is that of a real Prometheus.
No package registry has Grafana, so this module draws the panels.
"""

import asyncio
import html
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.scale import DEPLOYMENT, node_pool, sandbox_plan
from tenure.apis import labels
from tenure.cli.demo.script import MANIFESTS_FOLDER
from tenure.cli.exit_codes import CommandFailed, UsageError, exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.ports import Ports
from tools.metrics.dashboard import FILE
from tools.metrics.prometheus import Prometheus, Series
from tools.screenshots.browser import Browser, BrowserFault, NoBrowser, find_chromium

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
ROWS: Final = ("Now", "Nodes")
STEPS: Final = ((20, 25), (60, 30), (110, 35), (45, 35), (80, 25), (10, 40))
"""Pods of the Deployment, and seconds until the next step."""
CAPACITY_TYPES: Final = (labels.ON_DEMAND, labels.SPOT)
"""One NodePool for each."""
WIDTH, HEIGHT = 1280, 900
PLOT_WIDTH, PLOT_HEIGHT, LEFT, TOP = 396, 150, 44, 10
COLORS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#c0d8ff")
STYLE: Final = """
body { margin: 0; padding: 12px; width: 1256px; background: #111217; color: #ccccdc; font: 13px Arial, sans-serif; }
main { display: grid; grid-template-columns: repeat(3, 1fr); gap: 8px; }
h2 { grid-column: 1 / 4; margin: 6px 0 0; font-size: 15px; font-weight: normal; }
section { background: #181b1f; border: 1px solid #25272c; padding: 8px; height: 236px; overflow: hidden; }
h3 { margin: 0 0 6px; font-size: 13px; font-weight: bold; }
.stat { font-size: 64px; text-align: center; padding-top: 50px; color: #73bf69; }
.short { height: 150px; } .short .stat { padding-top: 20px; }
.legend { font-size: 11px; line-height: 15px; } .legend i { font-style: normal; margin-right: 10px; }
text { fill: #9fa7b3; font-size: 10px; }
"""
app = benchmark_app()


def draw_panel(panel: dict[str, Any], found: Sequence[tuple[str, Series]], began: float, end: float) -> str:
    """`found`: series with their legends."""
    unit, title = panel["fieldConfig"]["defaults"].get("unit", "short"), html.escape(panel["title"])
    if panel["type"] == "stat":
        values = [series.points[-1][1] for _, series in found if series.points]
        text = _format(values[0], unit) if values else "No data"
        return f'<section class="short"><h3>{title}</h3><div class="stat">{text}</div></section>'
    drawn = [(legend, series) for legend, series in found if series.points]
    top = max((value for _, series in drawn for _, value in series.points), default=0.0) or 1.0
    lines, legend_items = [], []
    for number, (legend, series) in enumerate(drawn):
        color = COLORS[number % len(COLORS)]
        per_second = (PLOT_WIDTH - LEFT) / (end - began)
        points = " ".join(
            f"{LEFT + (at - began) * per_second:.1f},{TOP + PLOT_HEIGHT * (1 - value / top):.1f}"
            for at, value in series.points
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        legend_items.append(f'<i><span style="color:{color}">&#9644;</span> {html.escape(legend)}</i>')
    grid = "".join(
        f'<line x1="{LEFT}" x2="{PLOT_WIDTH}" y1="{y}" y2="{y}" stroke="#2c3036"/>'
        f'<text x="{LEFT - 4}" y="{y + 3}" text-anchor="end">{_format(top * share, unit)}</text>'
        for share, y in ((1.0, TOP), (0.5, TOP + PLOT_HEIGHT // 2), (0.0, TOP + PLOT_HEIGHT))
    )
    plot = f'<svg width="{PLOT_WIDTH}" height="{PLOT_HEIGHT + 2 * TOP}">{grid}{"".join(lines)}</svg>'
    return f'<section><h3>{title}</h3>{plot}<div class="legend">{"".join(legend_items)}</div></section>'


def _format(value: float, unit: str) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".") if value < 100 else f"{value:.0f}"
    return {"currencyUSD": f"${text}", "s": f"{text} s"}.get(unit, text)


async def draw_dashboard(prometheus: Prometheus, end: float) -> str:
    """Panels without data, such as those of incidents, are left out."""
    parts, is_included = [], False
    for panel in json.loads(FILE.read_text())["panels"]:
        if panel["type"] == "row":
            is_included = panel["title"] in ROWS
            parts += [f"<h2>{panel['title']}</h2>"] if is_included else []
        elif is_included and (found := await _query(prometheus, panel)):
            parts.append(draw_panel(panel, found, prometheus.began, end))
    return f"<!doctype html><style>{STYLE}</style><main>{''.join(parts)}</main>"


async def _query(prometheus: Prometheus, panel: dict[str, Any]) -> list[tuple[str, Series]]:
    found = []
    for target in panel["targets"]:
        for series in await prometheus.query_range(target["expr"]):
            legend = target["legendFormat"]
            for key, value in series.labels.items():
                legend = legend.replace(f"{{{{{key}}}}}", value)
            found.append((legend, series))
    return found


async def capture(sandbox: Sandbox, program: str, folder: Path) -> None:
    ports = Ports()
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as session:
        metrics_url = f"http://127.0.0.1:{session.worker.metrics_port}/metrics"
        prometheus = Prometheus(sandbox.logs, ports.reserve(), metrics_url)
        await prometheus.process.start()
        try:
            await _change_nodes(session)
            page = sandbox.logs / "dashboard.html"
            end = prometheus.began + sum(seconds for _, seconds in STEPS)
            await asyncio.to_thread(page.write_text, await draw_dashboard(prometheus, end))
            async with Browser(program) as browser:
                await browser.size(WIDTH, HEIGHT)
                await browser.open(page.as_uri())
                await browser.wait_for_text("Cost per hour")
                picture = await browser.capture_screenshot(**await browser.bounding_box("body"))
        except BrowserFault as fault:
            raise CommandFailed(str(fault)) from fault
        finally:
            await prometheus.process.stop()
            ports.close()
    file = folder / "dashboard.png"
    await asyncio.to_thread(file.write_bytes, picture)
    typer.echo(f"{file.name}: {len(picture) // 1000} kB")


async def _change_nodes(session: SandboxSession) -> None:
    await session.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml", MANIFESTS_FOLDER / "deployment.yaml")
    for capacity_type in CAPACITY_TYPES:
        pool = node_pool()
        pool["metadata"]["name"] = capacity_type
        requirements = pool["spec"]["template"]["spec"]["requirements"]
        others = [one for one in requirements if one["key"] != labels.CAPACITY_TYPE]
        one_type = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}
        pool["spec"]["template"]["spec"]["requirements"] = [*others, one_type]
        pool["spec"]["limits"] = {"cpu": "40" if capacity_type == labels.SPOT else "400"}
        await session.kube.apply(pool)
    for pods, seconds in STEPS:
        await session.scale_deployment(pods)
        await asyncio.sleep(seconds)


@app.command()
def picture(
    chromium: Annotated[str, typer.Option(envvar="CHROMIUM", help="Path of Chromium, if it is not on the PATH.")] = "",
    folder: Annotated[Path, typer.Option(help="Output folder.")] = FOLDER,
) -> None:
    """Draw the dashboard, and take its picture."""
    if not shutil.which("prometheus"):
        raise UsageError("prometheus is not on the PATH: apt-get install prometheus")
    try:
        program = find_chromium(chromium)
    except NoBrowser as absent:
        raise UsageError(str(absent)) from absent
    in_sandbox(sandbox_plan(), lambda sandbox: capture(sandbox, program, folder))


if __name__ == "__main__":
    exit_process(run(app, "tools.screenshots.dashboard"))
