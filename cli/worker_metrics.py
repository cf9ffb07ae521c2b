"""What the worker counts of itself, read from its metrics port: for now, workflow tasks that failed and were repeated.

Temporal repeats such a task until it passes, so what was to happen happens all the same; the demo and the benchmark say
that there were some, since each is a bug or a machine that is too busy.
"""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

FAILED_TASKS = "temporal_workflow_task_execution_failed"


async def read_failed_tasks(port: int) -> dict[str, int]:
    """By workflow type; empty when there were none. Raises aiohttp's ClientError when nobody answers."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        response.raise_for_status()
        return failed_tasks(await response.text())


def failed_tasks(exposition: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name.removesuffix("_total") == FAILED_TASKS and sample.value:
                kind = sample.labels.get("workflow_type", "unknown")
                counts[kind] = counts.get(kind, 0) + int(sample.value)
    return counts


def line_of(counts: dict[str, int]) -> str:
    """Empty when there were none."""
    if not counts:
        return ""
    return "Workflow tasks that failed and were repeated: " + ", ".join(f"{kind} {n}" for kind, n in counts.items())
