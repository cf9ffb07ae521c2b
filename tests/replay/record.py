"""Records the histories that `test_replay.py` replays: `python -m tests.replay.record [PATH...]`.

A workflow that was started by recorded code must continue with today's code. From the first release on, do not record a
file again because a change broke it: guard the change with `workflow.patched`, and record the new path under a new
name. Until then, record it again.

Together the paths execute every line of `workflows/` that any path executed when they were chosen. Without arguments
only missing histories are recorded.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from tests.replay.paths import PATHS
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness

HISTORIES = Path(__file__).with_name("histories")


async def record(name: str) -> list[Path]:
    """Run one path and store the runs that it returns."""
    async with time_skipping() as skipping, WorkerHarness.on(skipping, cluster="recorded").running_worker() as fake:
        runs = await PATHS[name](fake)
        found = {part: await handle.fetch_history() for part, handle in runs.items()}
    return [_store_history(f"{name}.{part}" if part else name, history) for part, history in found.items()]


def _store_history(name: str, history: WorkflowHistory) -> Path:
    """One event per line, so that diffs show changed events."""
    events = _without_host_details(json.loads(history.to_json())["events"])
    lines = ",\n".join(json.dumps(event, sort_keys=True, separators=(",", ":")) for event in events)
    path = HISTORIES / f"{name}.json"
    path.write_text(f'{{"events":[\n{lines}\n]}}\n')
    return path


def _without_host_details(found: Any) -> Any:
    """Remove details of the recording machine: worker identity, stack traces and checksums."""
    if isinstance(found, list):
        return [_without_host_details(one) for one in found]
    if not isinstance(found, dict):
        return found
    dropped = ("stackTrace", "binaryChecksum")
    return {
        key: "worker" if key == "identity" else _without_host_details(value)
        for key, value in found.items()
        if key not in dropped
    }


def missing_paths() -> list[str]:
    return [name for name in PATHS if not list(HISTORIES.glob(f"{name}*.json"))]


async def main(names: list[str]) -> None:
    for name in names or missing_paths():
        for path in await record(name):
            print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
    sys.stdout.flush()
    # The SDK's threads may still run when the interpreter exits, and would abort it.
    os._exit(0)
