"""The capacity pools of a fleet, one per launch-template config and override, and their order by allocation strategy.

Rules from EC2 Fleet's user guide. Where AWS uses internal capacity data, the pool sizes of the control API are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenure.sandbox.aws.ec2.catalog import prices
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.fleet.launch_templates import resolve_template
from tenure.sandbox.aws.ec2.network.zones import subnet_of
from tenure.sandbox.aws.ec2.reservations.actions import has_open_capacity
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.wire.responses import AwsError, invalid_value, missing_parameter

LAST = float("inf")
SPOT_STRATEGIES = frozenset(
    {"lowest-price", "diversified", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"}
)
ON_DEMAND_STRATEGIES = frozenset({"lowest-price", "prioritized"})
COPIED = ("InstanceType", "SubnetId", "AvailabilityZone", "ImageId")


@dataclass(frozen=True)
class Pool:
    """`data` is the launch data of the instance; `override` and `template` are returned to the caller."""

    data: dict[str, Any]
    override: dict[str, Any]
    template: dict[str, str]
    template_tags: list[dict[str, Any]]
    zone: str | None = None
    subnet_id: str | None = None

    @property
    def instance_type(self) -> str:
        return str(self.data.get("InstanceType", "m1.small"))

    @property
    def priority(self) -> float:
        return float(self.override.get("Priority", LAST))

    @property
    def weight(self) -> float:
        return float(self.override.get("WeightedCapacity", 1))

    def to_response(self) -> dict[str, Any]:
        """The pool in the response of CreateFleet: the request with its location."""
        location = {"AvailabilityZone": self.zone, "SubnetId": self.subnet_id, "InstanceType": self.instance_type}
        overrides = {**self.override, **{k: v for k, v in location.items() if v}}
        return {"LaunchTemplateSpecification": self.template, "Overrides": overrides}


def read_pools(environment: Environment, request: dict[str, Any]) -> list[Pool]:
    """Raises NotFound of the launch template or a validation error, for the whole request."""
    configs = request.get("LaunchTemplateConfigs")
    if not configs:
        raise missing_parameter("LaunchTemplateConfigs")
    return [pool for config in configs for pool in _pools_of(environment, config)]


def _pools_of(environment: Environment, config: dict[str, Any]) -> list[Pool]:
    specification = config.get("LaunchTemplateSpecification")
    if not specification:
        raise missing_parameter("LaunchTemplateSpecification")
    if not specification.get("Version"):
        raise invalid_value("LaunchTemplateSpecification must contain a version.")
    template, version = resolve_template(environment, specification)
    named = {"LaunchTemplateId": template.id, "Version": str(version["VersionNumber"])}
    data = version["LaunchTemplateData"]
    pools = []
    for override in config.get("Overrides") or [{}]:
        if "InstanceRequirements" in override:
            raise AwsError("UnsupportedOperation", "InstanceRequirements is not supported here; name instance types.")
        pools.append(Pool(merge(data, override), override, named, data.get("TagSpecifications") or []))
    return pools


def merge(data: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Launch-template data with the fields of an override."""
    merged = {**data, **{key: override[key] for key in COPIED if override.get(key)}}
    if override.get("Placement"):
        merged["Placement"] = {**data.get("Placement", {}), **override["Placement"]}
    if override.get("BlockDeviceMappings"):
        merged["BlockDeviceMappings"] = [*data.get("BlockDeviceMappings", ()), *override["BlockDeviceMappings"]]
    return merged


def resolve_location(environment: Environment, pool: Pool) -> Pool:
    """The pool with its zone and subnet. Raises AwsError for an invalid reference."""
    if pool.instance_type not in all_types():
        raise invalid_value(f"Invalid value '{pool.instance_type}' for InstanceType.")
    subnet = subnet_of(environment, pool.data)
    return Pool(pool.data, pool.override, pool.template, pool.template_tags, subnet.availability_zone, subnet.id)


def in_order(
    environment: Environment, pools: list[Pool], market: str, options: dict[str, Any], need: int
) -> list[Pool]:
    """The pools in the order of the strategy; equal pools keep the order of the request."""
    strategy = options.get("AllocationStrategy") or "lowest-price"
    allowed = SPOT_STRATEGIES if market == "spot" else ON_DEMAND_STRATEGIES
    if strategy not in allowed:
        raise invalid_value(f"Invalid value '{strategy}' for AllocationStrategy.")
    ordered = sorted(pools, key=_sort_key(environment, strategy, market, need))
    first = options.get("CapacityReservationOptions", {}).get("UsageStrategy")
    if first == "use-capacity-reservations-first":
        ordered.sort(key=lambda pool: 0 if has_open_capacity(environment, pool.instance_type, pool.zone) else 1)
    return ordered


def _sort_key(environment: Environment, strategy: str, market: str, need: int) -> Callable[[Pool], tuple[float, ...]]:
    def price(pool: Pool) -> float:
        return pool_price(pool, market) / pool.weight

    def shortage(pool: Pool) -> float:
        remaining = environment.pools.remaining(
            (pool.instance_type, pool.zone or "", "spot" if market == "spot" else "on-demand")
        )
        return 0 if remaining is None else max(0, need - remaining)

    keys: dict[str, Callable[[Pool], tuple[float, ...]]] = {
        "lowest-price": lambda p: (price(p),),
        "diversified": lambda p: (price(p),),
        "prioritized": lambda p: (p.priority,),
        "capacity-optimized": lambda p: (shortage(p),),
        "capacity-optimized-prioritized": lambda p: (shortage(p), p.priority),
        "price-capacity-optimized": lambda p: (shortage(p), price(p)),
    }
    return keys[strategy]


def pool_price(pool: Pool, market: str) -> float:
    """Dollars per hour; infinite if the type is not available in this market."""
    if market == "spot":
        return prices.spot_price(pool.instance_type, pool.zone or "") or LAST
    return prices.on_demand_price(pool.instance_type) or LAST
