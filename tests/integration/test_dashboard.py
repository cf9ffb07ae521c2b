"""The panels of the Grafana dashboard have data in a real Prometheus that scrapes a worker.

Prometheus is Debian's package, or any other on the PATH.
"""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from tenure.sandbox.ports import Ports
from tenure.sandbox.processes import Process, http_ok
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import send_spot_warning
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct
from tools.metrics.dashboard import FILE

DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text())
SCRAPE_SECONDS: Final = 1
RATE_INTERVAL: Final = "15s"
QUIET: Final = {
    "Nodes that need attention, by code",
    "Launch failures",
    "Pods not bound to their node",
    "Missed deadlines",
    "Command outcomes",
    "Paused",
    "Blocked drains",
    "Hooks",
    "Failed activity attempts",
    "Workflows that were not running",
    "Throttled by AWS",
}
"""Panels without data while no fault, pause, hook or replacement occurs."""


class Prometheus:
    """Scrapes one worker."""

    def __init__(self, folder: Path, port: int, metrics_url: str) -> None:
        self.url, self._began = f"http://127.0.0.1:{port}", time.time()
        target = metrics_url.removeprefix("http://").removesuffix("/metrics")
        scrape = {"job_name": "tenure", "static_configs": [{"targets": [target]}]}
        config = folder / "prometheus.yml"
        config.write_text(
            yaml.safe_dump({"global": {"scrape_interval": f"{SCRAPE_SECONDS}s"}, "scrape_configs": [scrape]})
        )
        self.process = Process(
            "prometheus",
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            log=folder / "prometheus.log",
            health=http_ok(f"{self.url}/-/ready"),
        )

    async def has_data(self, query: str) -> bool:
        """Whether the query returned a series at any time since the start."""
        parameters = {
            "query": query.replace("$__rate_interval", RATE_INTERVAL).replace("$nodepool", ".*"),
            "start": str(self._began),
            "end": str(time.time()),
            "step": f"{SCRAPE_SECONDS}s",
        }
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/query_range", params=parameters) as response,
        ):
            body = await response.json()
        assert body["status"] == "success", (query, body)
        return any(value != "NaN" for series in body["data"]["result"] for _, value in series["values"])


@pytest.fixture
async def prometheus(product: InstalledProduct, tmp_path: Path) -> AsyncIterator[Prometheus]:
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not on the PATH: apt-get install prometheus")
    ports = Ports()
    server = Prometheus(tmp_path, ports.reserve(), product.worker.metrics)
    await server.process.start()
    yield server
    await server.process.stop()
    ports.close()


async def test_every_panel_has_data(product: InstalledProduct, prometheus: Prometheus) -> None:
    async with product.scope("dashboard", capacity_type="spot") as scope:
        (claim,) = await scope.run_pods(1)
        await interrupt(scope, claim)
        # The rate of a counter needs a value before the increase.
        (replacement,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        await interrupt(scope, replacement)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_instances_alive(0))
        await wait_until(lambda: assert_panels_have_data(prometheus))


async def interrupt(scope: ClusterScope, claim: Object) -> None:
    """Until the pod runs on another node."""
    send_spot_warning(scope.product, claim)
    await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
    await wait_until(lambda: scope.assert_pods_running(1))


async def assert_panels_have_data(prometheus: Prometheus) -> None:
    panels = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in with_targets()}
    assert panels.keys() >= QUIET and len(panels) > 20
    queries = [(title, query) for title, found in panels.items() for query in found if title not in QUIET]
    results = await asyncio.gather(*(prometheus.has_data(query) for _, query in queries))
    assert [one for one, has_data in zip(queries, results, strict=True) if not has_data] == []


def with_targets() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel.get("targets")]
