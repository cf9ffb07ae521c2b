"""Results of the comparison of random clusters with kube-scheduler, one JSON line for each cluster.

An interrupted run continues with the file. Runs of different seeds may have a file each.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.oracle.cluster_plan import Comparison

_COUNTS: Final = ("planned", "elsewhere", "stuck", "unplanned")


class ComparisonResults:
    def __init__(self, path: Path | None) -> None:
        """`path`: of the file, which may be absent; None: no file."""
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._by_seed: dict[int, dict[str, Any]] = {one["seed"]: one for one in map(json.loads, lines)}

    def missing(self, seeds: Iterable[int]) -> list[int]:
        """The seeds without a result."""
        return [seed for seed in seeds if seed not in self._by_seed]

    def add(self, found: Comparison) -> None:
        counts = (found.planned, len(found.elsewhere), len(found.stuck), len(found.unplanned))
        line: dict[str, Any] = {"seed": found.plan.cluster.seed, **dict(zip(_COUNTS, counts, strict=True))}
        if found.stuck or found.unplanned:
            line["disagreements"] = found.describe()
        self._by_seed[found.plan.cluster.seed] = line
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{json.dumps(line)}\n")

    def count(self, key: str) -> int:
        """The sum of a count over all clusters."""
        return sum(one[key] for one in self._by_seed.values())

    def summary(self) -> str:
        planned, elsewhere, stuck, unplanned = map(self.count, _COUNTS)
        bound = f"{elsewhere} bound elsewhere, {stuck} not bound, {unplanned} bound without a plan"
        return f"{len(self._by_seed)} clusters, {planned} planned pods, {bound}"
