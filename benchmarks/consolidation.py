"""Speed of voluntary disruption decisions, and the resulting cost of the cluster compared with a model of Karpenter.

    .venv/bin/python -m benchmarks.consolidation [--nodes 500] [--only on-demand,spot,spread] [--karpenter] [--json
    FILE]

A pass is one decision over all nodes. Its commands are applied, and passes repeat until no further command saves money.
The model (`karpenter_models.py`) runs one command per pass. Durations are CPU seconds, because the machine may be busy.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.generators.cluster import NOW, Cluster, generate_cluster
from benchmarks.karpenter_models import Karpenter
from benchmarks.report import describe_machine
from tenure.model.disruption.decision import Command, Decision, DisruptionRequest
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.consolidation import Consolidation

KINDS: Final[dict[str, dict[str, Any]]] = {
    "on-demand": {},
    "spot": {"spot": 0.3},
    "spread": {"spread": True},
}
MOST_PASSES: Final = 20
Row = dict[str, Any]


def measure_row(kind: str, nodes: int, *, karpenter: bool, seed: int = 1) -> Row:
    cluster = generate_cluster(nodes, seed=seed, **KINDS[kind])
    row: Row = {
        "row": f"{kind}:{nodes}",
        "nodes": len(cluster.nodes),
        "pods": sum(map(len, cluster.pods.values())),
        "price": round(cluster.total_price(), 3),
    }
    passes = [_run_pass(cluster)]
    while passes[-1][0].commands and len(passes) < MOST_PASSES:
        passes.append(_run_pass(cluster))
    row |= {
        "first_seconds": round(passes[0][1], 2),
        "slowest_seconds": round(max(one[1] for one in passes), 2),
        "multi_seconds": round(max(one[2] for one in passes), 2),
        "passes": len(passes),
        "after": round(cluster.total_price(), 3),
        "nodes_after": len(cluster.nodes),
    }
    if karpenter and kind != "spread":
        other = generate_cluster(nodes, seed=seed, **KINDS[kind])
        row["karpenter_passes"] = Karpenter(other).consolidate()
        row |= {"karpenter_after": round(other.total_price(), 3), "karpenter_nodes": len(other.nodes)}
    return row


def _run_pass(cluster: Cluster) -> tuple[Decision, float, float]:
    """Decide and apply. Returns the decision, its CPU seconds, and those of its multi-node search."""
    state, searching = cluster.state(), [0.0]
    search = Consolidation.find_multi_node

    def timed_search(self: Consolidation, candidates: Iterable[Candidate]) -> Command | None:
        began = time.process_time()
        found = search(self, candidates)
        searching[0] += time.process_time() - began
        return found

    with patch.object(Consolidation, "find_multi_node", timed_search):
        began = time.process_time()
        decision = state.disrupt(DisruptionRequest(now=NOW))
        taken = time.process_time() - began
    for command in decision.commands:
        cluster.carry_out(command)
    return decision, taken, searching[0]


def render_table(rows: Iterable[Row]) -> Table:
    table = Table(title="Voluntary disruption", title_justify="left")
    columns = {
        "nodes": "nodes",
        "pods": "pods",
        "price": "$/h before",
        "after": "$/h after",
        "karpenter_after": "Karpenter",
        "nodes_after": "nodes after",
        "karpenter_nodes": "Karpenter",
        "passes": "passes",
        "karpenter_passes": "Karpenter",
        "first_seconds": "first pass s",
        "slowest_seconds": "slowest s",
        "multi_seconds": "multi s",
    }
    for name in ("", *columns.values()):
        table.add_column(name, justify="right", no_wrap=True)
    for one in rows:
        table.add_row(one["row"], *(str(one.get(key, "-")) for key in columns))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--only", default=",".join(KINDS), help="comma-separated kinds")
    parser.add_argument("--karpenter", action="store_true", help="also run the model of Karpenter, which takes minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    for kind in options.only.split(","):
        print(f"{kind} ...", file=sys.stderr, flush=True)
        rows.append(measure_row(kind, options.nodes, karpenter=options.karpenter, seed=options.seed))
    out = Console(width=None if Console().is_terminal else 180, highlight=False)
    out.print(f"Measured on {describe_machine()}")
    out.print(render_table(rows))
    if options.json:
        options.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=2) + "\n")
    return 1 if any(one["after"] > one.get("karpenter_after", one["after"]) for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
