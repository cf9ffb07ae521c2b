"""The control API on instances: the list with what changed, and what AWS or a person does to them from outside.

Images through the control API: another one, a new release of a family, one that is deprecated or gone.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from tenure.sandbox.aws.ec2.call import new_id
from tenure.sandbox.aws.ec2.instances import actions
from tenure.sandbox.aws.ec2.records import Image, Instance
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.services import eventbridge
from tenure.sandbox.aws.stand_in import FakeAws
from tenure.sandbox.aws.state.eks_images import FAMILIES, publish_release
from tenure.sandbox.aws.state.seed import set_parameter

Body = dict[str, Any]
LONGEST_WAIT = 60.0
ALIVE = frozenset({"pending", "running", "stopping", "stopped"})


def list_instances(standin: FakeAws, body: Body) -> Any:
    """All instances, or with `after` those that changed after that revision; `wait` seconds until there is one."""
    world = standin.default_environment
    after = int(body.get("after", -1))
    with world.lock:
        _await_change(world, after, min(LONGEST_WAIT, float(body.get("wait", 0))))
        changed = [i for i in world.instances.values() if i.revision > after]
        return {
            "revision": world.revision,
            "launched": world.launched,
            "terminated": world.terminated,
            "alive": sum(i.state in ALIVE for i in world.instances.values()),
            "gone": [one for revision, one in world.deleted if revision > after] if after >= 0 else [],
            "instances": [_to_json(instance) for instance in changed],
        }


def _await_change(world: Environment, after: int, seconds: float) -> None:
    world.run_due_transitions()
    end = time.monotonic() + seconds
    while world.revision <= after and (left := end - time.monotonic()) > 0:
        world.moved.wait(left)


def _to_json(instance: Instance) -> Body:
    return {
        "id": instance.id,
        "state": instance.state,
        "instance_type": instance.instance_type,
        "zone": instance.zone,
        "zone_id": instance.zone_id,
        "capacity_type": "spot" if instance.lifecycle == "spot" else "on-demand",
        "lifecycle": instance.lifecycle,
        "image_id": instance.image_id,
        "image_name": instance.image_name,
        "platform": instance.platform,
        "efa_interfaces": sum(one.interface_type.startswith("efa") for one in instance.interfaces),
        "architecture": instance.architecture,
        "subnet_id": instance.subnet_id,
        "private_ip": instance.private_ip,
        "launch_time": instance.launch_time.isoformat(),
        "fleet_id": instance.fleet_id,
        "capacity_reservation_id": instance.capacity_reservation_id,
        "placement_group_id": instance.group_id,
        "partition": instance.partition,
        "volumes": {volume.device: volume.size for volume in instance.volumes},
        "revision": instance.revision,
        "reboots": instance.reboots,
        "tags": instance.tags,
    }


def list_fleets(standin: FakeAws, body: Body) -> Any:
    """Every fleet asked for: its token, what it wanted and what it got."""
    return {
        "fleets": [
            {
                "id": fleet.id,
                "client_token": fleet.client_token,
                "target": fleet.request.get("TargetCapacitySpecification"),
                "overrides": sum(len(c.get("Overrides", ())) for c in fleet.request["LaunchTemplateConfigs"]),
                "instances": [i for group in fleet.response["Instances"] for i in group["InstanceIds"]],
                "errors": [error["ErrorCode"] for error in fleet.response["Errors"]],
                "tags": fleet.tags,
            }
            for fleet in standin.default_environment.fleets.values()
        ]
    }


def _get_instance(world: Environment, body: Body) -> Instance:
    world.run_due_transitions()
    return world.instances[body["id"]]


def stop(standin: FakeAws, body: Body) -> Any:
    """AWS stops the instance, whatever its kind."""
    with standin.default_environment.lock:
        standin.default_environment.enter_state(_get_instance(standin.default_environment, body), "stopping")
    return {"ok": True}


def start(standin: FakeAws, body: Body) -> Any:
    with standin.default_environment.lock:
        standin.default_environment.enter_state(_get_instance(standin.default_environment, body), "pending")
    return {"ok": True}


def terminate(standin: FakeAws, body: Body) -> Any:
    """Somebody else terminates it, out of band."""
    with standin.default_environment.lock:
        actions.terminate(standin.default_environment, _get_instance(standin.default_environment, body))
    return {"ok": True}


def set_status(standin: FakeAws, body: Body) -> Any:
    """What DescribeInstanceStatus shows: `instance`, `system`, `ebs` (ok, impaired, ...) and scheduled `events`."""
    seconds = body.get("impaired_seconds") or 0.0
    since = None if seconds < 0 else standin.default_environment.now() - dt.timedelta(seconds=seconds)
    with standin.default_environment.lock:
        status = _get_instance(standin.default_environment, body).status
        status.update({key: body[key] for key in ("instance", "system", "ebs", "events") if key in body})
        status["impaired_since"] = since
    return {"ok": True}


def interrupt_spot(standin: FakeAws, body: Body) -> Any:
    """The interruption warning goes to the queue; after `notice_seconds` (120) the instance is taken, unless `keep`."""
    world = standin.default_environment
    with world.lock:
        instance = _get_instance(world, body)
        eventbridge.send_event(
            standin.settings, eventbridge.spot_interruption(standin.settings, world.now(), instance.id)
        )
        if not body.get("keep"):
            world.schedule_reclaim(instance, float(body.get("notice_seconds", 120)))
    return {"ok": True}


def recommend_rebalance(standin: FakeAws, body: Body) -> Any:
    with standin.default_environment.lock:
        instance = _get_instance(standin.default_environment, body)
    eventbridge.send_event(
        standin.settings,
        eventbridge.rebalance_recommendation(standin.settings, standin.default_environment.now(), instance.id),
    )
    return {"ok": True}


def announce_health_event(standin: FakeAws, body: Body) -> Any:
    """An AWS Health event about `ids`; `detail` is laid over the usual one."""
    event = eventbridge.health_event(
        standin.settings, standin.default_environment.now(), list(body["ids"]), **body.get("detail", {})
    )
    eventbridge.send_event(standin.settings, event)
    return {"arn": event["detail"]["eventArn"]}


def send_message(standin: FakeAws, body: Body) -> Any:
    """Any message into the cluster's queue, as it is."""
    eventbridge.send_message(standin.settings, body["message"])
    return {"ok": True}


def count_messages(standin: FakeAws, body: Body) -> Any:
    return {"queued": eventbridge.count_queued_messages(standin.settings)}


def add_image(standin: FakeAws, body: dict[str, Any]) -> Any:
    """Add a public image owned by Amazon (or `owner`), or change the one with this `id`; point `parameters` at it."""
    world = standin.default_environment
    created = _parse_time(body.get("created")) or world.now()
    image = Image(
        id=body.get("id") or new_id("ami"),
        name=body["name"],
        owner=body.get("owner", "602401143452"),
        owner_alias=body.get("owner_alias", "amazon"),
        architecture=body.get("architecture", "x86_64"),
        created=created,
        description=body.get("description", ""),
        root_device="/dev/xvda",
        volumes=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
        deprecation=_parse_time(body.get("deprecation")),
        public=bool(body.get("public", True)),
        tags=dict(body.get("tags", {})),
    )
    with world.lock:
        world.images[image.id] = image
    for name in body.get("parameters", ()):
        set_parameter(standin, name, image.id)
    return {"id": image.id}


def release(standin: FakeAws, body: dict[str, Any]) -> Any:
    """A family's next release, for one Kubernetes minor version or all; the moving parameters point at it at once."""
    family, world = body["family"], standin.default_environment
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}")
    found = publish_release(family, body["version"], world.now() - dt.timedelta(hours=1), body.get("minor"))
    with world.lock:
        for one in found:
            world.images[one.image.id] = one.image
            for name in one.parameters:
                set_parameter(standin, name, one.image.id)
    return {"images": {one.image.name: one.image.id for one in found}}


def deprecate_image(standin: FakeAws, body: dict[str, Any]) -> Any:
    with standin.default_environment.lock:
        standin.default_environment.images[body["id"]].deprecation = standin.default_environment.now()
    return {"ok": True}


def remove_image(standin: FakeAws, body: dict[str, Any]) -> Any:
    with standin.default_environment.lock:
        del standin.default_environment.images[body["id"]]
    return {"ok": True}


def _parse_time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
