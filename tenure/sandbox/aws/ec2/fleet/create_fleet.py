"""CreateFleet of type instant: one response with launched instances and an error for each failed pool.

The same client token returns the same response. `capacity_pools` orders the pools, `launch` creates the instances.

Also DescribeFleets and DeleteFleets. EC2 lists instant fleets only by ID.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, new_fleet_id, not_found
from tenure.sandbox.aws.ec2.fleet.capacity_pools import LAST, Pool, in_order, pool_price, read_pools, resolve_location
from tenure.sandbox.aws.ec2.fleet.launch import LaunchSpec, PreparedLaunch, launch_one, perform_once, prepare_launch
from tenure.sandbox.aws.ec2.instances.actions import terminate
from tenure.sandbox.aws.ec2.records import Fleet, Instance
from tenure.sandbox.aws.ec2.reservations.actions import INTERRUPTIBLE, RESERVED_MARKETS
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, invalid_value, missing_parameter

TARGET_MARKETS = {
    "on-demand": "on-demand",
    "spot": "spot",
    "capacity-block": "capacity-block",
    "reserved-capacity": INTERRUPTIBLE,
}
OPTIONS = {"spot": "SpotOptions", "on-demand": "OnDemandOptions"}
Permit = Callable[[PreparedLaunch], None]


@dataclass
class Outcome:
    """Result of a fleet so far: instances by pool and market, and errors of other pools."""

    made: dict[tuple[int, str], list[Instance]] = field(default_factory=lambda: defaultdict(list))
    pools: dict[int, Pool] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)

    def add_error(self, pool: Pool, market: str, error: AwsError) -> None:
        self.errors.append(
            {
                "LaunchTemplateAndOverrides": pool.to_response(),
                "Lifecycle": market,
                "ErrorCode": error.code,
                "ErrorMessage": error.message,
            }
        )

    def add(self, pool: Pool, market: str, instance: Instance) -> None:
        self.pools[id(pool)] = pool
        self.made[id(pool), market].append(instance)

    def instance_groups(self) -> list[dict[str, Any]]:
        return [
            {
                "LaunchTemplateAndOverrides": self.pools[pool_id].to_response(),
                "Lifecycle": market,
                "InstanceIds": [instance.id for instance in made],
                "InstanceType": made[0].instance_type,
                **({"Platform": made[0].platform} if made[0].platform else {}),
            }
            for (pool_id, market), made in self.made.items()
        ]


def create_fleet(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    if request.get("Type", "maintain") != "instant":
        raise AwsError("UnsupportedOperation", "Only fleets of type instant are supported here.")
    targets = _capacity_targets(request)
    # A repeated call returns the stored response even if its launch templates are deleted by now.
    return perform_once(environment, "CreateFleet", request, lambda: _create(call, targets))


def _create(call: Call, targets: list[tuple[str, int]]) -> dict[str, Any]:
    tags = read_specifications(call.params.get("TagSpecifications"))
    pools = read_pools(call.environment, call.params)
    call.permit_fleet(tags.get("fleet", {}), pools)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    outcome, fleet_id = Outcome(), new_fleet_id()
    for market, need in targets:
        _launch_from_pools(call, outcome, pools, market, need, fleet_id, tags)
    response = {"FleetId": fleet_id, "Errors": outcome.errors, "Instances": outcome.instance_groups()}
    request, environment = call.params, call.environment
    environment.fleets[fleet_id] = Fleet(
        fleet_id, request.get("ClientToken"), environment.now(), request, tags.get("fleet", {}), response
    )
    return response


def _capacity_targets(request: dict[str, Any]) -> list[tuple[str, int]]:
    specification = request.get("TargetCapacitySpecification")
    if not specification or "TotalTargetCapacity" not in specification:
        raise missing_parameter("TargetCapacitySpecification")
    total = specification["TotalTargetCapacity"]
    default = specification.get("DefaultTargetCapacityType", "on-demand")
    if default not in TARGET_MARKETS:
        raise invalid_value(f"Invalid value '{default}' for DefaultTargetCapacityType.")
    if total < 1:
        raise invalid_value("TotalTargetCapacity must be greater than 0.")
    fixed = {
        "on-demand": specification.get("OnDemandTargetCapacity", 0),
        "spot": specification.get("SpotTargetCapacity", 0),
    }
    rest = total - sum(fixed.values())
    if rest < 0:
        raise bad_combination("The sum of On-Demand and Spot target capacity exceeds the total target capacity.")
    counts = {market: count for market, count in fixed.items() if count}
    if rest:
        counts[TARGET_MARKETS[default]] = counts.get(TARGET_MARKETS[default], 0) + rest
    kinds = request.get("ReservedCapacityOptions", {}).get("ReservationTypes") or []
    if default == "reserved-capacity" and not kinds:
        raise missing_parameter("ReservedCapacityOptions")
    if set(kinds) - {INTERRUPTIBLE}:
        raise invalid_value(f"Invalid value '{kinds}' for ReservationTypes.")
    return list(counts.items())


def _launch_from_pools(
    call: Call,
    outcome: Outcome,
    pools: list[Pool],
    market: str,
    need: int,
    fleet_id: str,
    tags: dict[str, dict[str, str]],
) -> None:
    options = call.params.get(OPTIONS.get(market, ""), {})
    resolved = _resolve_pools(call, outcome, pools, market)
    ordered = in_order(call.environment, resolved, market, options, need)
    before = {key: len(made) for key, made in outcome.made.items()}
    launcher = _Launcher(call, outcome, market, options, fleet_id, tags)
    got = launcher.launch(ordered, need)
    if got < options.get("MinTargetCapacity", 0):
        _roll_back(call, outcome, before)


def _resolve_pools(call: Call, outcome: Outcome, pools: list[Pool], market: str) -> list[Pool]:
    good = []
    for pool in pools:
        try:
            good.append(resolve_location(call.environment, pool))
        except AwsError as error:
            outcome.add_error(pool, market, error)
    return good


def _roll_back(call: Call, outcome: Outcome, before: dict[tuple[int, str], int]) -> None:
    for key in list(outcome.made):
        for instance in outcome.made[key][before.get(key, 0) :]:
            call.environment.enter_state(instance, "shutting-down")
        del outcome.made[key][before.get(key, 0) :]
        if not outcome.made[key]:
            del outcome.made[key]


@dataclass
class _Launcher:
    """Launches instances of one market from pools, one after the other or spread evenly."""

    call: Call
    outcome: Outcome
    market: str
    options: dict[str, Any]
    fleet_id: str
    tags: dict[str, dict[str, str]]
    prepared: dict[int, PreparedLaunch] = field(default_factory=dict)

    def launch(self, ordered: list[Pool], need: int) -> float:
        """Capacity units obtained."""
        spread = self._pool_count(ordered)
        got = self._launch_evenly(ordered[:spread], need) if spread > 1 else 0.0
        for pool in ordered if spread <= 1 else ordered[spread:]:
            while got < need:
                if not self._launch_instance(pool):
                    break
                got += pool.weight
        return got

    def _pool_count(self, ordered: list[Pool]) -> int:
        if self.market != "spot":
            return 1
        if self.options.get("AllocationStrategy") == "diversified":
            return len(ordered)
        return int(self.options.get("InstancePoolsToUseCount", 1))

    def _launch_evenly(self, pools: list[Pool], need: int) -> float:
        got, open_pools = 0.0, list(pools)
        while got < need and open_pools:
            for pool in list(open_pools):
                if got >= need:
                    break
                if self._launch_instance(pool):
                    got += pool.weight
                else:
                    open_pools.remove(pool)
        return got

    def _launch_instance(self, pool: Pool) -> bool:
        try:
            if self.call.starved is not None:
                raise self.call.starved
            prepared = self._prepare_pool(pool)
            made = self.outcome.made.get((id(pool), self.market), [])
            instance = launch_one(self.call.environment, prepared, len(made))
        except AwsError as error:
            self.outcome.add_error(pool, self.market, error)
            return False
        self.outcome.add(pool, self.market, instance)
        return True

    def _prepare_pool(self, pool: Pool) -> PreparedLaunch:
        if id(pool) not in self.prepared:
            self._require_market(pool)
            prepared = prepare_launch(self.call.environment, self._launch_spec(pool))
            self.call.permit_launch(prepared, pool.template["LaunchTemplateId"])
            self.prepared[id(pool)] = prepared
        return self.prepared[id(pool)]

    def _require_market(self, pool: Pool) -> None:
        kind = pool.data.get("InstanceMarketOptions", {}).get("MarketType")
        markets = {kind, self.market} - {None}
        if (self.market in RESERVED_MARKETS or kind in RESERVED_MARKETS) and (kind is None or len(markets) > 1):
            raise AwsError(
                "InvalidFleetConfiguration",
                f"The fleet's target is {self.market}, but the launch template's market type is {kind}.",
            )
        price = pool_price(pool, self.market)
        if self.market == "spot" and price == LAST:
            raise AwsError("Unsupported", f"Spot is not supported for the instance type {pool.instance_type}.")
        limit = pool.override.get("MaxPrice")
        if self.market == "spot" and limit and float(limit) < price:
            raise AwsError(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {limit} is lower than the minimum required Spot request fulfillment "
                f"price of {price}.",
            )

    def _launch_spec(self, pool: Pool) -> LaunchSpec:
        own = read_specifications(pool.template_tags)
        kinds = {*own, *self.tags}
        tags = {kind: {**own.get(kind, {}), **self.tags.get(kind, {})} for kind in kinds}
        tags.setdefault("instance", {})
        tags["instance"] |= {
            "aws:ec2:fleet-id": self.fleet_id,
            "aws:ec2launchtemplate:id": pool.template["LaunchTemplateId"],
            "aws:ec2launchtemplate:version": pool.template["Version"],
        }
        token = f"{self.fleet_id}-{len(self.outcome.made)}"
        return LaunchSpec(pool.data, self.market, tags, self.fleet_id, token)


def describe_fleets(call: Call) -> dict[str, Any]:
    ids = call.params.get("FleetIds") or []
    return {"Fleets": [_fleet_view(fleet) for fleet in _find_fleets(call, ids)]}


def delete_fleets(call: Call) -> dict[str, Any]:
    ids = call.params.get("FleetIds")
    if not ids:
        raise missing_parameter("FleetId")
    environment, deletions = call.environment, []
    for fleet in _find_fleets(call, ids):
        for instance in list(environment.instances.values()):
            doomed = call.params.get("TerminateInstances") and instance.fleet_id == fleet.id
            if doomed and instance.state not in ("shutting-down", "terminated"):
                terminate(environment, instance)
        del environment.fleets[fleet.id]
        deletions.append(
            {"FleetId": fleet.id, "CurrentFleetState": "deleted_terminating", "PreviousFleetState": "active"}
        )
    return {"SuccessfulFleetDeletions": deletions, "UnsuccessfulFleetDeletions": []}


def _find_fleets(call: Call, ids: list[str]) -> list[Fleet]:
    missing = [one for one in ids if one not in call.environment.fleets]
    if missing:
        raise not_found(missing, "fleet", "fleet")
    return [call.environment.fleets[one] for one in dict.fromkeys(ids)]


def _fleet_view(fleet: Fleet) -> dict[str, Any]:
    target = fleet.request["TargetCapacitySpecification"]
    got = sum(len(group["InstanceIds"]) for group in fleet.response["Instances"])
    return {
        "FleetId": fleet.id,
        "FleetState": "active",
        "ActivityStatus": "fulfilled" if got >= target["TotalTargetCapacity"] else "error",
        "Type": "instant",
        "ClientToken": fleet.client_token,
        "CreateTime": fleet.created,
        "FulfilledCapacity": float(got),
        "TargetCapacitySpecification": target,
        "Instances": fleet.response["Instances"],
        "Errors": fleet.response["Errors"],
        "Tags": tag_list(fleet.tags),
    }
