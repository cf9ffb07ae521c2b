"""Price and number of nodes of plans by NODE_COST, next to a lower bound and a model of Karpenter's scheduler.

    .venv/bin/python -m benchmarks.node_cost [--only small,diverse] [--node-costs 0,0.002,0.025]

Instance types and prices are the sandbox's: all of EC2, close to AWS's list for us-west-2, and invented spot prices.
The lower bound counts burstable types with their baseline CPU, as the planner does. The model of Karpenter counts all
of their CPU; its second result is without burstable types. Prices do not include NODE_COST. Prints Markdown.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from benchmarks.generators.workloads import (
    Object,
    Scenario,
    diverse_pods,
    make_daemonsets,
    make_pod,
    make_pool,
    mixed_pods,
    mixed_pools,
    plain_pods,
)
from benchmarks.karpenter_models import greedy_price
from benchmarks.lower_bound import lower_bound
from tenure.apis import labels
from tenure.apis.resources import CPU
from tenure.aws.instancetype.resolver import resolve_types
from tenure.cli.simulate.results import build_simulation
from tenure.model.instance_types import InstanceType
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.catalog.prices import on_demand_price, spot_price
from tenure.scheduling.burstable_types import baseline_millicores
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change
from tests.support.aws.builders import SETTINGS, build_nodeclass, region, resolved_status

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
Pods = Callable[[int, random.Random], Iterator[Object]]


def equal_pods(cpu: int, memory: int, count: int, _: random.Random) -> Iterator[Object]:
    """`cpu` in millicores, `memory` in MiB."""
    return (make_pod(f"pod-{number}", cpu, memory) for number in range(count))


def any_on_demand() -> list[Object]:
    """One NodePool that allows all types, on-demand."""
    return [make_pool("default", [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": [labels.ON_DEMAND]}])]


def any_spot() -> list[Object]:
    """One NodePool that allows all types, spot."""
    return [make_pool("default", [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": [labels.SPOT]}])]


SHAPES: Final[dict[str, tuple[int, Pods, Callable[[], list[Object]]]]] = {
    "few": (12, plain_pods, any_on_demand),
    "small": (2_000, partial(equal_pods, 100, 128), any_on_demand),
    "equal": (2_000, partial(equal_pods, 500, 512), any_on_demand),
    "memory": (500, partial(equal_pods, 500, 8192), any_on_demand),
    "cpu": (500, partial(equal_pods, 3500, 4096), any_on_demand),
    "services": (2_000, plain_pods, any_on_demand),
    "diverse": (500, diverse_pods, any_on_demand),
    "small-spot": (2_000, partial(equal_pods, 100, 128), any_spot),
    "equal-spot": (2_000, partial(equal_pods, 500, 512), any_spot),
    "services-spot": (2_000, plain_pods, any_spot),
    "mixed": (1_000, mixed_pods, lambda: mixed_pools()[1:]),
}
"""Number of pods, pods and NodePools. Without the first pool of `mixed`, since the models know no limits."""


def ec2_types() -> tuple[InstanceType, ...]:
    """All types of EC2 as an EC2NodeClass with AL2023 offers them in three zones."""
    prices = {name: price for name in all_types() if (price := on_demand_price(name)) is not None}
    resolved = resolve_types(region(on_demand=prices), build_nodeclass(resolved_status()), SETTINGS)
    return tuple(_with_spot_prices(one) for one in resolved.types)


def _with_spot_prices(one: InstanceType) -> InstanceType:
    prices = {
        offering: spot_price(one.name, offering.zone) if offering.capacity_type == labels.SPOT else offering.price
        for offering in one.offerings
    }
    offerings = tuple(
        offering.model_copy(update={"price": price}) for offering, price in prices.items() if price is not None
    )
    return one.model_copy(update={"offerings": offerings})


def with_baseline_cpu(one: InstanceType) -> InstanceType:
    baseline = baseline_millicores(one.name)
    return one if baseline is None else one.model_copy(update={"capacity": {**one.capacity, CPU: baseline}})


def measure_plan(scenario: Scenario, node_cost: float) -> tuple[float, int]:
    """US dollars per hour, and the number of nodes."""
    state = scenario.cluster_state(PlanSettings(node_cost=node_cost))
    pods = {one.uid: one for one in scenario.pod_facts()}
    state.apply(Change(kind="pod", key=uid, fact=one) for uid, one in pods.items())
    plan = state.provision(now=NOW)
    if plan.unschedulable:
        raise SystemExit(f"{scenario.name}: {plan.unschedulable[0].reason}")
    types = {one.name: one for one in scenario.types}
    simulation = build_simulation(plan, pods, {one.pool: types for one in plan.claims}, plan.seconds)
    return simulation.price, len(plan.claims)


def measure_shape(name: str, types: Sequence[InstanceType], node_costs: Sequence[float]) -> str:
    """One line of the table."""
    count, pods, pools = SHAPES[name]
    scenario = Scenario(name, pools(), list(pods(count, random.Random(1))), make_daemonsets(), tuple(types))
    pod_facts, pool_facts, daemons = scenario.pod_facts(), scenario.pool_facts(), scenario.daemon_facts()
    bound = lower_bound(pod_facts, pool_facts, [with_baseline_cpu(one) for one in types], daemons)
    steady = [one for one in types if baseline_millicores(one.name) is None]
    models = [greedy_price(pod_facts, pool_facts, some, daemons) for some in (types, steady)]
    plans = [measure_plan(scenario, one) for one in node_costs]
    cells = [f"{price:.2f} ({nodes})" for price, nodes in (*models, *plans)]
    ratio = plans[-1][0] / models[0][0]
    return f"| {count:,} {name} | {bound:.2f} | {' | '.join(cells)} | {ratio:.2f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SHAPES), help="comma-separated shapes")
    parser.add_argument(
        "--node-costs",
        default=f"0,0.002,{PlanSettings().node_cost}",
        help="comma-separated USD/h; the ratio is that of the last one to Karpenter's price",
    )
    options = parser.parse_args()
    node_costs = [float(one) for one in options.node_costs.split(",")]
    types = ec2_types()
    columns = ("lower bound", "Karpenter", "without burstable", *(f"NODE_COST={one:g}" for one in node_costs), "ratio")
    print(f"| pods | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|", flush=True)
    for name in options.only.split(","):
        print(measure_shape(name, types, node_costs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
