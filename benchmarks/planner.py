"""Speed of the planner, and the price of its plans compared with a lower bound.

    .venv/bin/python -m benchmarks.planner [--runs 3] [--only plain:5000,diverse:1000] [--json FILE]

Each row runs in a separate process, for its own peak memory. Its CPU seconds are the minimum of some first passes over
the same facts. `tests/oracle/plan.py` validates plans of at most 1,000 pods.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.generators.workloads import Scenario, make_scenario
from benchmarks.karpenter_models import greedy_price
from benchmarks.lower_bound import lower_bound
from benchmarks.report import describe_machine
from tenure.cli.simulate.results import build_simulation
from tenure.gc_settings import tune_gc
from tenure.model.plan import Plan
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change
from tests.oracle.plan import PlanInputs, find_violations

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
PROVED: Final = 1_000
"""Maximum pods for the validator, which is slow."""
MODELLED: Final = 1_000
"""Maximum pods for the model of Karpenter's scheduler, which is slow."""
ROWS: Final = (
    *(f"plain:{number}" for number in (1_000, 5_000, 20_000, 50_000)),
    *(f"ragged:{number}" for number in (1_000, 5_000)),
    *(f"diverse:{number}" for number in (1_000, 5_000, 20_000)),
    *(f"crossed:{number}" for number in (1_000, 5_000)),
    *(f"preferences:{number}" for number in (1_000, 4_000)),
    "preferences:4000:Ignore",
    "mixed:5000",
    "gpu:5000",
)
"""A workload of `workloads.py`, the number of pods, and PREFERENCE_POLICY."""
_MODELLED: Final = ("plain", "ragged", "diverse")
Row = dict[str, Any]


def measure_row(row: str, runs: int) -> Row:
    """Measure a row in this process."""
    kind, count, policy = (*row.split(":"), "Respect")[:3]
    workload = make_scenario(kind, int(count))
    settings = PlanSettings.model_validate({"preference_policy": policy})
    tune_gc()  # As in the planner's process.
    passes = [_run_pass(workload, settings) for _ in range(runs)]
    plan, cpu, wall = passes[-1][0], min(one[1] for one in passes), min(one[2] for one in passes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    pods = {one.uid: one for one in workload.pod_facts()}
    types = {one.name: one for one in workload.types}
    price = build_simulation(plan, pods, {one.pool: types for one in plan.claims}, cpu).price
    everything = (list(pods.values()), workload.pool_facts(), workload.types, workload.daemon_facts())
    return {
        "row": row,
        "pods": len(pods),
        "nodes": len(plan.claims),
        "unplaced": len(plan.unschedulable),
        "cpu_seconds": round(cpu, 3),
        "wall_seconds": round(wall, 3),
        "price": round(price, 3),
        "bound": round(lower_bound(*everything), 3) if kind != "ragged" or len(pods) <= PROVED else None,
        "greedy": round(greedy_price(*everything)[0], 3) if kind in _MODELLED and len(pods) <= MODELLED else None,
        "peak_bytes": peak,
        "wrong": list_violations(plan, workload) if len(pods) <= PROVED else None,
    }


def _run_pass(workload: Scenario, settings: PlanSettings) -> tuple[Plan, float, float]:
    """A first plan, with CPU and wall seconds. They include building the type tables, but not reading the facts."""
    state = workload.cluster_state(settings)
    state.apply(Change(kind="pod", key=one.uid, fact=one) for one in workload.pod_facts())
    cpu, wall = time.process_time(), time.perf_counter()
    plan = state.provision(now=NOW)
    return plan, time.process_time() - cpu, time.perf_counter() - wall


def list_violations(plan: Plan, workload: Scenario) -> list[str]:
    """Violations that `tests/oracle/plan.py` finds."""
    return find_violations(
        plan,
        PlanInputs(
            pods={one.uid: one for one in workload.pod_facts()},
            pools={one.name: one for one in workload.pool_facts()},
            types={one.name: one for one in workload.types},
            daemons=tuple(workload.daemon_facts()),
        ),
    )


def start_up() -> float:
    """Wall seconds of `tenure simulate` for one pod: the minimum of three runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_scenario("plain", 1).write(folder)
        command = [sys.executable, "-c", "from tenure.cli.main import run; run()", "simulate"]
        for option in ("nodepools", "pods", "instance-types"):
            command += [f"--{option}", str(folder / f"{option}.json")]
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken.append(time.perf_counter() - began)
    return min(taken)


def render_table(rows: Sequence[Row]) -> Table:
    table = Table(title="Planning", title_justify="left")
    for name in ("pods", "CPU s", "wall s", "pods/s", "nodes", "$/h", "bound", "ratio", "greedy", "peak MB", "proof"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in rows:
        ratio = f"{one['price'] / one['bound']:.3f}" if one["bound"] else "-"
        proof = "-" if one["wrong"] is None else "wrong" if one["wrong"] else "valid"
        table.add_row(
            one["row"],
            f"{one['cpu_seconds']:.3f}",
            f"{one['wall_seconds']:.3f}",
            f"{one['pods'] / one['cpu_seconds']:,.0f}",
            f"{one['nodes']:,}" + (f" ({one['unplaced']} unschedulable)" if one["unplaced"] else ""),
            f"{one['price']:.2f}",
            f"{one['bound']:.2f}" if one["bound"] else "-",
            ratio,
            f"{one['greedy']:.2f}" if one["greedy"] else "-",
            f"{one['peak_bytes'] / 1e6:.0f}",
            proof,
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(ROWS), help="comma-separated rows, such as diverse:5000")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_row(options.one, options.runs)))
        return 0
    rows: list[Row] = []
    for row in options.only.split(","):
        print(f"{row} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.planner", "--one", row, "--runs", str(options.runs)]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    seconds = start_up()
    out = Console(width=None if Console().is_terminal else 160, highlight=False)
    out.print(f"Measured on {describe_machine()}")
    out.print(render_table(rows))
    out.print(f"tenure simulate: {seconds:.2f} s for one pod, including its start")
    if options.json:
        found = {"machine": describe_machine(), "rows": rows, "start_seconds": seconds}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(one["wrong"] for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
