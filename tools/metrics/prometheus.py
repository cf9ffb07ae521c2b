"""A Prometheus server that scrapes one worker: Debian's package, or any other on the PATH."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from tenure.sandbox.processes import Process, http_ok

SCRAPE_SECONDS: Final = 1
RATE_INTERVAL: Final = "15s"
"""For `$__rate_interval`, which Grafana derives from the scrape interval."""
ALL_NODEPOOLS: Final = ".*"


@dataclass(frozen=True)
class Series:
    labels: dict[str, str]
    points: list[tuple[float, float]]
    """Time in seconds since 1970, and value, without NaN."""


class Prometheus:
    def __init__(self, folder: Path, port: int, metrics_url: str) -> None:
        """`metrics_url`: of the worker."""
        self.url, self.began = f"http://127.0.0.1:{port}", time.time()
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

    async def query_range(self, query: str) -> list[Series]:
        """The result of a dashboard's query from the start until now."""
        parameters = {
            "query": query.replace("$__rate_interval", RATE_INTERVAL).replace("$nodepool", ALL_NODEPOOLS),
            "start": str(self.began),
            "end": str(time.time()),
            "step": f"{SCRAPE_SECONDS}s",
        }
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/query_range", params=parameters) as response,
        ):
            body = await response.json()
        assert body["status"] == "success", (query, body)
        return [
            Series(one["metric"], [(float(at), float(value)) for at, value in one["values"] if value != "NaN"])
            for one in body["data"]["result"]
        ]
