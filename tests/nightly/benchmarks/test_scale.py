"""The scale benchmark measures the real cost of processes, and accepts only steps that it can measure."""

import os
import subprocess
import sys

import pytest
from rich.console import Console

from benchmarks.harness import Usage, all_stats, children_of, measure_usage, tree_usage
from benchmarks.report import Step, report
from benchmarks.scale import node_pool, sizes_of
from tenure.cli.exit_codes import UsageError

BURN = """
import time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print('burnt', flush=True)
input()
"""


def test_cpu_of_a_child_counts_for_its_parent_also_after_its_end() -> None:
    own_usage = measure_usage({"me": [os.getpid()]})["me"]
    child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"burnt\n"
    assert child.pid in children_of(os.getpid())
    usage = measure_usage({"me": [os.getpid()], "child": [child.pid]})
    assert usage["child"].cpu >= 0.25
    assert usage["me"].cpu >= own_usage.cpu + usage["child"].cpu
    assert usage["me"].rss > usage["child"].rss > 1_000_000
    child.communicate(b"\n")
    assert measure_usage({"me": [os.getpid()]})["me"].cpu >= usage["me"].cpu


def test_usage_of_a_missing_process_is_zero() -> None:
    assert tree_usage([2**22 + 1], all_stats()) == Usage()


def test_fresh_returns_to_zero_between_sizes_and_all_runs_end_at_zero() -> None:
    assert sizes_of("100,500,1000,0", fresh=False) == [100, 500, 1000, 0]
    assert sizes_of("100,500,1000,0", fresh=True) == [100, 0, 500, 0, 1000, 0]
    assert sizes_of("100", fresh=False) == [100, 0]


@pytest.mark.parametrize("steps", ["", "many", "-5", "0", "100,20000", "500,100", "100,100"])
def test_invalid_steps_are_rejected_by_option_name(steps: str) -> None:
    with pytest.raises(UsageError, match="--steps"):
        sizes_of(steps, fresh=False)


def test_nodepool_is_the_example_without_limits_and_delays() -> None:
    spec = node_pool()["spec"]
    assert "limits" not in spec
    assert spec["disruption"]["consolidateAfter"] == "0s"
    assert {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["9"]} in spec["template"]["spec"][
        "requirements"
    ]


def test_report_compares_with_karpenter_and_sums_other_processes() -> None:
    up = Step(
        begin=0,
        end=100,
        seconds=12.34,
        nodes=15,
        calls={"ec2:CreateFleet": 1, "ec2:DescribeInstances": 4},
        cost={
            "worker": Usage(3.0, 200_000_000),
            "planner": Usage(1.0, 90_000_000),
            "temporal": Usage(2.0, 150_000_000),
            "etcd": Usage(0.5, 50_000_000),
            "kube-apiserver": Usage(4.0, 300_000_000),
        },
    )
    down = Step(begin=100, end=0, seconds=9.0, nodes=15, calls={}, cost=up.cost, events=[70, 72, 90])
    console = Console(width=200)
    with console.capture() as capture:
        report([up, down], fresh=False, console=console)
    lines = capture.get().splitlines()

    def row(title: str) -> list[str]:
        line = next(line for line in lines if title in line)
        return [cell.strip() for cell in line.split("│")[1:-1]]

    assert row(" 0 -> 100 │    12.3") == ["0 -> 100", "12.3", "15", "5", "10.5", "15", "22-24"]
    assert row("ec2:DescribeInstances")[1:] == ["4", "-"]
    assert row("others")[1:] == ["4.5 s   350 MB"] * 2
    assert "3 NodeClaims: min 70, median 72, max 90" in lines[-1]
    assert up.as_json()["cost"]["worker"] == {"cpu_seconds": 3.0, "rss_bytes": 200_000_000}
