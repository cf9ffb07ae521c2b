"""DescribeFleets and DeleteFleets for the instant fleets that were created. EC2 lists instant ones only by id."""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.ids import not_found
from sandbox.aws.ec2.instances import terminate
from sandbox.aws.ec2.records import Fleet
from sandbox.aws.ec2.tagging import tag_list
from sandbox.aws.wire.errors import missing_parameter


def describe_fleets(call: Call) -> dict[str, Any]:
    ids = call.params.get("FleetIds") or []
    return {"Fleets": [_view(fleet) for fleet in _named(call, ids)]}


def delete_fleets(call: Call) -> dict[str, Any]:
    ids = call.params.get("FleetIds")
    if not ids:
        raise missing_parameter("FleetId")
    world, answers = call.world, []
    for fleet in _named(call, ids):
        for instance in list(world.instances.values()):
            doomed = call.params.get("TerminateInstances") and instance.fleet_id == fleet.id
            if doomed and instance.state not in ("shutting-down", "terminated"):
                terminate(world, instance)
        del world.fleets[fleet.id]
        answers.append(
            {"FleetId": fleet.id, "CurrentFleetState": "deleted_terminating", "PreviousFleetState": "active"}
        )
    return {"SuccessfulFleetDeletions": answers, "UnsuccessfulFleetDeletions": []}


def _named(call: Call, ids: list[str]) -> list[Fleet]:
    missing = [one for one in ids if one not in call.world.fleets]
    if missing:
        raise not_found(missing, "fleet", "fleet")
    return [call.world.fleets[one] for one in dict.fromkeys(ids)]


def _view(fleet: Fleet) -> dict[str, Any]:
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
