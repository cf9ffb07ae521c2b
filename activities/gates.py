"""Gates of roll-outs: one instant query of Prometheus, held against a limit (`GET /api/v1/query`).

Whatever goes wrong is an answer: what nobody can tell holds a roll-out, and never lets it pass or fail.
"""

import asyncio
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import aiohttp
from temporalio import activity

from activities.errors import faults_mapped
from model.rollouts import Gate, GateAnswer

_SAID: Final = 200
"""Characters of what Prometheus says to a query that it does not like."""


class GateActivities:
    """`url` of Prometheus, such as http://prometheus.monitoring:9090; empty when there is none."""

    def __init__(self, url: str = "") -> None:
        self._url = url.rstrip("/")
        self._shown = re.sub(r"//[^/@]*@", "//", self._url)
        """Without a name and password."""

    @activity.defn
    @faults_mapped
    async def ask_gate(self, gate: Gate) -> GateAnswer:
        """Of several series the worst decides."""
        values = await self._ask(gate)
        if isinstance(values, str):
            return GateAnswer(gate=gate.id, outcome="unknown", why=values)
        worst = max(values) if gate.below is not None else min(values)
        limit = gate.below if gate.below is not None else gate.above
        if limit is None:
            return GateAnswer(gate=gate.id, outcome="unknown", why="it has no limit: write below or above")
        passed = worst < limit if gate.below is not None else worst > limit
        wanted = f"{'below' if gate.below is not None else 'above'} {limit:g}"
        why = "" if passed else f"{gate.name}: {worst:g} is not {wanted}"
        return GateAnswer(gate=gate.id, outcome="passed" if passed else "failed", value=worst, why=why)

    async def _ask(self, gate: Gate) -> list[float] | str:
        """A number for each series, or why there is none."""
        if not self._url:
            return "no Prometheus is known to the worker: set PROMETHEUS_URL"
        seconds = gate.timeout.total_seconds()
        timeout = aiohttp.ClientTimeout(total=seconds)
        asking = {"query": gate.query, "timeout": f"{seconds:g}s"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self._url}/api/v1/query", params=asking) as response,
            ):
                told = await response.json(content_type=None)
        except TimeoutError:
            return f"no answer of {self._shown} within {seconds:g}s"
        except (aiohttp.ClientError, ValueError, asyncio.IncompleteReadError) as error:
            return f"no answer of {self._shown}: {str(error) or type(error).__name__}"[:_SAID]
        return _read(told, response.status)


def _read(told: Any, code: int) -> list[float] | str:
    if not isinstance(told, Mapping) or told.get("status") != "success":
        said = told.get("error", "") if isinstance(told, Mapping) else ""
        return f"Prometheus answers {code} {said}".strip()[:_SAID]
    try:
        values = list(_values(told["data"]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return f"the answer of Prometheus cannot be read: {error!r}"[:_SAID]
    if not values:
        return "the query finds no series"
    return "the query answers with NaN" if any(math.isnan(one) for one in values) else values


def _values(data: Mapping[str, Any]) -> Iterator[float]:
    """Raises ValueError for what is neither a scalar nor instant series."""
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        yield float(result[1])
    elif kind == "vector":
        yield from (float(one["value"][1]) for one in result)
    else:
        raise ValueError(f"a {kind} is no number: write a query that answers with one at this moment")
