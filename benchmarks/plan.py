"""How fast the planner plans: pods a second for equal and for mixed pods over a generated catalogue.

    .venv/bin/python -m benchmarks.plan [--most-cpus 192] [--runs 3]

Every plan is proved by `scheduling/validation.py` before its figure is printed.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from benchmarks.catalogue import ZONES, catalogue
from model.catalogue import Catalogue
from model.facts import DaemonSetFact, PodFact, PoolFact
from model.labels import ARCH, INSTANCE_TYPE, ZONE
from model.plans import Plan
from scheduling.state import Change, ClusterState
from scheduling.validation import Given, violations

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GIB = 1 << 30
SIZES = (100, 500, 1_000, 5_000, 10_000)


def equal_pods(number: int) -> Iterator[PodFact]:
    """Replicas of one Deployment: 1 CPU, 1 GiB."""
    return (_pod(index, 1000, GIB, {}) for index in range(number))


def mixed_pods(number: int) -> Iterator[PodFact]:
    """Sizes from 100 millicores to 8 CPUs with various memory; some want a zone or an architecture. Seeded."""
    dice = random.Random(20)
    for index in range(number):
        cpu = dice.choice((100, 250, 500, 1000, 1500, 2000, 4000, 8000))
        memory = int(cpu / 1000 * dice.choice((1, 2, 4, 8)) * GIB)
        wishes: tuple[dict[str, str], ...] = (
            {},
            {},
            {ZONE: dice.choice(ZONES)},
            {ARCH: dice.choice(("amd64", "arm64"))},
        )
        yield _pod(index, cpu, memory, dice.choice(wishes))


def _pod(index: int, cpu: int, memory: int, selector: dict[str, str]) -> PodFact:
    name = f"pod-{index:06}"
    return PodFact(
        uid=name,
        namespace="default",
        name=name,
        requests={"cpu": cpu, "memory": memory, "pods": 1},
        created=NOW + timedelta(milliseconds=index),
        unschedulable=True,
        node_selector=selector,
    )


def daemons() -> Iterator[DaemonSetFact]:
    for name, cpu, memory in (("kube-proxy", 100, 0), ("cni", 50, 0), ("agent", 100, 200 << 20)):
        pod = _pod(0, cpu, memory, {}).model_copy(update={"uid": name, "name": name, "daemonset": True})
        yield DaemonSetFact(uid=f"ds-{name}", namespace="kube-system", name=name, pod=pod)


def measure(pods: list[PodFact], types: Catalogue, runs: int) -> tuple[Plan, float]:
    """The plan and the seconds of the fastest of some first passes; reading the facts is not counted."""
    best = float("inf")
    for _ in range(runs):
        state = ClusterState()
        state.set_catalogue(types)
        state.apply([Change(kind="pool", key="default", fact=_pool())])
        state.apply(Change(kind="daemonset", key=one.uid, fact=one) for one in daemons())
        state.apply(Change(kind="pod", key=one.uid, fact=one) for one in pods)
        began = time.perf_counter()
        plan = state.provision(now=NOW)
        best = min(best, time.perf_counter() - began)
    return plan, best


def _pool() -> PoolFact:
    return PoolFact(name="default", uid="uid", ready=True, node_class="default")


def price(plan: Plan, types: Catalogue) -> float:
    """US dollars an hour if every claim gets its cheapest offering, on-demand or spot, in any zone."""
    cheapest = {one.name: min(o.price for o in one.offerings) for one in types.by_node_class["default"]}
    return sum(
        min(cheapest[name] for one in claim.requirements if one.key == INSTANCE_TYPE for name in one.values)
        for claim in plan.claims
    )


def proved(plan: Plan, pods: list[PodFact], types: Catalogue) -> bool:
    kinds = {one.name: one for one in types.by_node_class["default"]}
    given = Given(
        pods={one.uid: one for one in pods}, pools={"default": _pool()}, types=kinds, daemons=tuple(daemons())
    )
    wrong = violations(plan, given)
    for one in wrong[:5]:
        print(one, file=sys.stderr)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most-cpus", type=int, default=192, help="size of the largest instance type, in vCPUs")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    types = catalogue(arguments.most_cpus)
    print(f"{len(types.by_node_class['default'])} instance types of at most {arguments.most_cpus} vCPUs")
    print(f"{'pods':>12} {'nodes':>6} {'unplaced':>8} {'seconds':>8} {'pods/s':>8} {'$/h':>9}")
    makers: tuple[tuple[str, Callable[[int], Iterator[PodFact]]], ...] = (("equal", equal_pods), ("mixed", mixed_pods))
    valid = True
    for name, make in makers:
        for number in SIZES:
            pods = list(make(number))
            plan, seconds = measure(pods, types, arguments.runs)
            valid = proved(plan, pods, types) and valid
            figures = f"{len(plan.claims):>6} {len(plan.unplaced):>8} {seconds:>8.3f} {number / seconds:>8.0f}"
            print(f"{name} {number:>6} {figures} {price(plan, types):>9.2f}")
    return 0 if valid else 1


if __name__ == "__main__":
    sys.exit(main())
