"""Time and memory of a plan with as many hostile as ordinary pods, compared with a plan of only the ordinary pods.

    .venv/bin/python -m benchmarks.hostile_pods [--pods 1000] [--runs 3] [--workload diverse]

Each plan runs in a separate process, for its own peak memory. Reading the objects is not measured.
1,000 pods of `plain` form 11 pod classes, and those of `diverse` 447. 1,000 hostile pods add 87 classes and five
priorities, so with `plain` the ratio mostly reflects the number of classes.
"""

import argparse
import copy
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.generators.workloads import KINDS, make_scenario
from benchmarks.report import describe_machine
from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from tenure.kube.facts.pods import read_pod
from tenure.model.facts import Expression, PodFact
from tenure.model.plan import Plan
from tenure.scheduling.snapshot import Change
from tests.support.hostile.objects import BASES, list_fields, put
from tests.support.hostile.values import FAMILIES

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
UNREADABLE: Final = "the pod cannot be read"
GOAL: Final = 1.5


def hostile_pods(count: int) -> list[PodFact]:
    """Pods without a node selector that differ in one hostile value, repeated up to `count`.

    Unreadable pods are omitted, because the planner only receives their reasons.
    """
    found: list[PodFact] = []
    while len(found) < count:
        for _, family, path in list_fields("Pod"):
            for value in FAMILIES[family].values():
                pod = _pending_pod(f"hostile-{len(found)}", path, value)
                if not pod.unplannable.startswith(UNREADABLE):
                    found.append(pod)
    return found[:count]


def _pending_pod(name: str, path: str, value: Any) -> PodFact:
    raw = copy.deepcopy(BASES["Pod"])
    raw["metadata"] |= {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    raw["spec"].pop("nodeSelector")
    for constraint in ("affinity", "topologySpreadConstraints", "volumes"):
        if constraint not in path:
            raw["spec"].pop(constraint)
    put(raw, path, value)
    stored = json.dumps(raw, ensure_ascii=False).encode(errors="replace")
    return read_pod(json.loads(stored)).model_copy(update={"unschedulable": True})


def costly_pods() -> list[PodFact]:
    """Pods whose constraints multiply: required terms with preferences, distinct terms, and domains of several
    labels."""
    plain = {
        "uid": "",
        "namespace": "default",
        "name": "",
        "requests": {"cpu": 10, "pods": 1},
        "created": NOW,
        "unschedulable": True,
        "labels": {"app": "costly"},
    }
    zones = [[Expression(key=ZONE, operator="NotIn", values=(f"x{number}",))] for number in range(1_000)]
    apps = [[Expression(key="app", operator="In", values=(f"x{number}",))] for number in range(1_500)]
    itself = [Expression(key="app", operator="In", values=("costly",))]
    keys = (INSTANCE_TYPE, ZONE, CAPACITY_TYPE, "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size")
    constraints: tuple[dict[str, Any], ...] = (
        {"required_terms": zones, "preferred_terms": [{"weight": 1, "expressions": zone} for zone in zones]},
        {"anti_affinity": [{"key": HOSTNAME, "selector": app} for app in apps]},
        {"spreads": [{"key": key, "max_skew": 1, "selector": itself} for key in keys]},
    )
    return [
        PodFact.model_validate({**plain, "uid": f"costly-{kind}-{number}", "name": f"costly-{kind}-{number}", **more})
        for kind, more in enumerate(constraints)
        for number in range(100)
    ]


def plan_pods(
    ordinary: int, hostile: int, workload_name: str = "diverse", more: Iterable[PodFact] = ()
) -> tuple[Plan, set[str], float]:
    """The plan, the UIDs of the ordinary pods, and the CPU seconds of applying the facts and planning. `more`: other
    hostile pods."""
    workload = make_scenario(workload_name, ordinary)
    pods = workload.pod_facts()
    uids = {one.uid for one in pods}
    pods += [*hostile_pods(hostile), *more]
    state = workload.cluster_state()
    gc.collect()
    began = time.process_time()
    state.apply(Change(kind="pod", key=one.uid, fact=one) for one in pods)
    plan = state.provision(now=NOW)
    return plan, uids, time.process_time() - began


def _measure(ordinary: int, hostile: int, runs: int, workload: str) -> dict[str, float]:
    seconds = []
    for _ in range(runs):
        plan, uids, taken = plan_pods(ordinary, hostile, workload)
        seconds.append(taken)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    unplanned = len(uids & {one.pod_uid for one in plan.unschedulable})
    return {"seconds": min(seconds), "peak_mib": peak, "nodes": len(plan.claims), "unplanned": unplanned}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workload", default="diverse", choices=KINDS)
    parser.add_argument("--hostile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hostile is not None:
        print(json.dumps(_measure(options.pods, options.hostile, options.runs, options.workload)))
        return 0
    arguments = [f"--pods={options.pods}", f"--runs={options.runs}", f"--workload={options.workload}"]
    command = [sys.executable, "-m", "benchmarks.hostile_pods", *arguments]
    ordinary, combined = (
        json.loads(subprocess.run([*command, f"--hostile={count}"], check=True, stdout=subprocess.PIPE).stdout)
        for count in (0, options.pods)
    )
    print(f"Measured on {describe_machine()}")
    for name, row in (("only ordinary", ordinary), ("with hostile", combined)):
        print(f"{name:>15}: {row['seconds']:.3f} CPU s, {row['peak_mib']:.0f} MiB, {row['nodes']} nodes")
    ratios = {key: combined[key] / ordinary[key] for key in ("seconds", "peak_mib")}
    print(f"{'ratio':>15}: time {ratios['seconds']:.2f}, memory {ratios['peak_mib']:.2f}, goal {GOAL}")
    print(f"unschedulable ordinary pods: {combined['unplanned']}")
    return int(max(ratios.values()) > GOAL or combined["unplanned"] > 0)


if __name__ == "__main__":
    sys.exit(main())
