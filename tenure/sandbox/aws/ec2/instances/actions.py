"""DescribeInstances, TerminateInstances, StopInstances, StartInstances, RebootInstances."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, not_found, require_well_formed
from tenure.sandbox.aws.ec2.filters import accepts, compile_filters, page
from tenure.sandbox.aws.ec2.instances.filters import INSTANCE_FILTERS, instance_facts
from tenure.sandbox.aws.ec2.instances.view import instance_xml, state_of
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.ec2.state import World
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, missing_parameter

UNSTOPPABLE = frozenset({"shutting-down", "terminated"})


def visible(world: World, instance_ids: list[str]) -> list[Instance]:
    """The named instances, each once. Raises InvalidInstanceID.Malformed or .NotFound (also if not yet visible)."""
    require_well_formed(instance_ids, "i")
    unique = list(dict.fromkeys(instance_ids))
    missing = [i for i in unique if i not in world.instances or world.instances[i].visible_at > world.clock.now()]
    if missing:
        raise not_found(missing, "i", "instance")
    return [world.instances[i] for i in unique]


def all_visible(world: World) -> list[Instance]:
    return [i for i in world.instances.values() if i.visible_at <= world.clock.now()]


def describe_instances(call: Call) -> dict[str, Any]:
    request, world = call.params, call.world
    ids = request.get("InstanceIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter instancesSet cannot be used with the parameter maxResults")
    filters = compile_filters(request.get("Filters"), INSTANCE_FILTERS)
    _refuse_dry(request)
    chosen = visible(world, ids) if ids else all_visible(world)
    if filters:
        chosen = [i for i in chosen if accepts(filters, instance_facts(world, i))]
    chosen.sort(key=_sequence)
    shown, token = page(chosen, request, _sequence, low=5, high=1000)
    return {"Reservations": _reservations(world, shown), "NextToken": token}


def _sequence(instance: Instance) -> int:
    return instance.sequence


def _reservations(world: World, instances: list[Instance]) -> list[dict[str, Any]]:
    groups = groupby(instances, key=lambda instance: instance.reservation_id)
    return [
        {
            "ReservationId": reservation_id,
            "OwnerId": world.account,
            "Groups": [],
            "Instances": [instance_xml(world, instance) for instance in members],
        }
        for reservation_id, members in groups
    ]


def is_protected(instance: Instance) -> bool:
    return bool(instance.data.get("DisableApiTermination"))


def terminate_instances(call: Call) -> dict[str, Any]:
    """All or none: one id that is missing or protected and nothing is terminated."""
    instances = _named(call, "TerminateInstances")
    for instance in instances:
        if is_protected(instance):
            raise AwsError(
                "OperationNotPermitted",
                f"The instance '{instance.id}' may not be terminated. Modify its 'disableApiTermination' instance "
                "attribute and try again.",
            )
    return {"TerminatingInstances": [_terminate(call.world, instance) for instance in instances]}


def _terminate(world: World, instance: Instance) -> dict[str, Any]:
    before = state_of(instance)
    if instance.state not in UNSTOPPABLE:
        terminate(world, instance)
    return {"InstanceId": instance.id, "CurrentState": state_of(instance), "PreviousState": before}


def terminate(world: World, instance: Instance) -> None:
    """Begin to shut an instance down, as its owner wants it."""
    _explain(world, instance)
    world.enter(instance, "shutting-down")


def _explain(world: World, instance: Instance) -> None:
    instance.reason = f"User initiated ({world.now():%Y-%m-%d %H:%M:%S} GMT)"
    instance.reason_code = "Client.UserInitiatedShutdown"
    instance.reason_message = "Client.UserInitiatedShutdown: User initiated shutdown"


def stop_instances(call: Call) -> dict[str, Any]:
    instances = _named(call, "StopInstances")
    for instance in instances:
        if instance.state in UNSTOPPABLE or instance.state == "pending":
            raise _wrong_state(instance, "stopped")
        if instance.lifecycle == "spot":
            raise AwsError(
                "UnsupportedOperation", f"You can't stop the Spot Instance '{instance.id}' because it is one-time."
            )
    return {"StoppingInstances": [_change(call.world, i, "stopping", ("stopping", "stopped")) for i in instances]}


def start_instances(call: Call) -> dict[str, Any]:
    instances = _named(call, "StartInstances")
    for instance in instances:
        if instance.state in UNSTOPPABLE or instance.state == "stopping":
            raise _wrong_state(instance, "started")
    return {"StartingInstances": [_change(call.world, i, "pending", ("pending", "running")) for i in instances]}


def reboot_instances(call: Call) -> dict[str, Any]:
    instances = _named(call, "RebootInstances")
    for instance in instances:
        if instance.state not in ("pending", "running"):
            raise _wrong_state(instance, "rebooted")
    for instance in instances:
        call.world.reboot(instance)
    return {"Return": True}


def _change(world: World, instance: Instance, state: str, already: tuple[str, str]) -> dict[str, Any]:
    before = state_of(instance)
    if instance.state not in already:
        if state == "stopping":
            _explain(world, instance)
        else:
            instance.reason, instance.reason_code = "", None
            instance.launch_time = world.now().replace(microsecond=0)
        world.enter(instance, state)
    return {"InstanceId": instance.id, "CurrentState": state_of(instance), "PreviousState": before}


def _wrong_state(instance: Instance, verb: str) -> AwsError:
    return AwsError(
        "IncorrectInstanceState",
        f"The instance '{instance.id}' is not in a state from which it can be {verb}.",
    )


def _named(call: Call, action: str) -> list[Instance]:
    ids = call.params.get("InstanceIds")
    if not ids:
        raise missing_parameter("InstanceId")
    instances = visible(call.world, ids)
    call.permit_each(action, "instance", {i.id: i.tags for i in instances})
    _refuse_dry(call.params)
    return instances


def _refuse_dry(request: dict[str, Any]) -> None:
    if request.get("DryRun"):
        raise dry_run_ok()
