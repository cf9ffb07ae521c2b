"""RunInstances, with or without a launch template. Karpenter only calls it with DryRun, as a permission check."""

from __future__ import annotations

import uuid
from typing import Any

from tenure.sandbox.aws.ec2.call import Call
from tenure.sandbox.aws.ec2.fleet.launch import LaunchSpec, launch_one, perform_once, prepare_launch
from tenure.sandbox.aws.ec2.fleet.launch_templates import resolve_template
from tenure.sandbox.aws.ec2.instances.view import instance_xml
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.ec2.tags import read_specifications
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, missing_parameter

NOT_DATA = frozenset({"LaunchTemplate", "MinCount", "MaxCount", "DryRun", "ClientToken", "TagSpecifications"})


def run_instances(call: Call) -> dict[str, Any]:
    request = call.params
    low, high = request.get("MinCount"), request.get("MaxCount")
    if low is None or high is None:
        raise missing_parameter("MinCount" if low is None else "MaxCount")
    if not 1 <= low <= high:
        raise bad_combination("The value for MaxCount must be greater than or equal to MinCount")
    made = perform_once(call.environment, "RunInstances", request, lambda: _launch(call, low, high))
    instances = [call.environment.instances[i] for i in made if i in call.environment.instances]
    return {
        "ReservationId": instances[0].reservation_id if instances else None,
        "OwnerId": call.environment.account,
        "Groups": [],
        "Instances": [instance_xml(call.environment, instance) for instance in instances],
    }


def _launch_spec(call: Call) -> tuple[LaunchSpec, str | None]:
    request, environment = call.params, call.environment
    _require_one_level(call)
    data = {key: value for key, value in request.items() if key not in NOT_DATA}
    own = read_specifications(request.get("TagSpecifications"))
    reference, template_id = request.get("LaunchTemplate"), None
    if reference:
        template, version = resolve_template(environment, reference)
        template_id = template.id
        base = version["LaunchTemplateData"]
        data = {**base, **data}
        if data.get("NetworkInterfaces"):
            data["NetworkInterfaces"] = _merge_interfaces(base, data["NetworkInterfaces"])
        theirs = read_specifications(base.get("TagSpecifications"))
        own = {kind: {**theirs.get(kind, {}), **own.get(kind, {})} for kind in {*theirs, *own}}
        own.setdefault("instance", {})
        own["instance"] |= {
            "aws:ec2launchtemplate:id": template.id,
            "aws:ec2launchtemplate:version": str(version["VersionNumber"]),
        }
    market = data.get("InstanceMarketOptions", {}).get("MarketType", "on-demand")
    token = request.get("ClientToken") or str(uuid.uuid4())
    return LaunchSpec(data, market, own, client_token=token), template_id


def _require_one_level(call: Call) -> None:
    """A subnet belongs to the interfaces or to the instance. Fleets are exempt: their overrides name the subnet."""
    reference = call.params.get("LaunchTemplate")
    base = resolve_template(call.environment, reference)[1]["LaunchTemplateData"] if reference else {}
    if call.params.get("SubnetId") and (call.params.get("NetworkInterfaces") or base.get("NetworkInterfaces")):
        raise bad_combination(
            "Network interfaces and an instance-level subnet ID may not be specified on the same request"
        )


def _merge_interfaces(base: dict[str, Any], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    theirs = {i.get("DeviceIndex", 0): i for i in base.get("NetworkInterfaces") or ()}
    return [{**theirs.get(i.get("DeviceIndex", 0), {}), **i} for i in own]


def _launch(call: Call, low: int, high: int) -> list[str]:
    spec, template_id = _launch_spec(call)
    prepared = prepare_launch(call.environment, spec)
    call.permit_launch(prepared, template_id)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    made: list[Instance] = []
    try:
        for index in range(high):
            made.append(launch_one(call.environment, prepared, index))
    except AwsError:
        if len(made) < low:
            for instance in made:
                call.environment.enter_state(instance, "shutting-down")
            raise
    return [instance.id for instance in made]
