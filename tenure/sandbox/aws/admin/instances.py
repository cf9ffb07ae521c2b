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
from tenure.sandbox.aws.ec2.state import World
from tenure.sandbox.aws.services import eventbridge
from tenure.sandbox.aws.stand_in import StandIn
from tenure.sandbox.aws.state.eks_images import FAMILIES, released
from tenure.sandbox.aws.state.seed import set_parameter

Body = dict[str, Any]
LONGEST_WAIT = 60.0
ALIVE = frozenset({"pending", "running", "stopping", "stopped"})


def instances(standin: StandIn, body: Body) -> Any:
    """All instances, or with `after` those that changed after that revision; `wait` seconds until there is one."""
    world = standin.home
    after = int(body.get("after", -1))
    with world.lock:
        _await_change(world, after, min(LONGEST_WAIT, float(body.get("wait", 0))))
        changed = [i for i in world.instances.values() if i.revision > after]
        return {
            "revision": world.revision,
            "launched": world.launched,
            "terminated": world.terminated,
            "alive": sum(i.state in ALIVE for i in world.instances.values()),
            "gone": [one for revision, one in world.gone if revision > after] if after >= 0 else [],
            "instances": [_compact(instance) for instance in changed],
        }


def _await_change(world: World, after: int, seconds: float) -> None:
    world.settle()
    end = time.monotonic() + seconds
    while world.revision <= after and (left := end - time.monotonic()) > 0:
        world.moved.wait(left)


def _compact(instance: Instance) -> Body:
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


def launches(standin: StandIn, body: Body) -> Any:
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
            for fleet in standin.home.fleets.values()
        ]
    }


def _one(world: World, body: Body) -> Instance:
    world.settle()
    return world.instances[body["id"]]


def stop(standin: StandIn, body: Body) -> Any:
    """AWS stops the instance, whatever its kind."""
    with standin.home.lock:
        standin.home.enter(_one(standin.home, body), "stopping")
    return {"ok": True}


def start(standin: StandIn, body: Body) -> Any:
    with standin.home.lock:
        standin.home.enter(_one(standin.home, body), "pending")
    return {"ok": True}


def terminate(standin: StandIn, body: Body) -> Any:
    """Somebody else terminates it, out of band."""
    with standin.home.lock:
        actions.terminate(standin.home, _one(standin.home, body))
    return {"ok": True}


def set_status(standin: StandIn, body: Body) -> Any:
    """What DescribeInstanceStatus shows: `instance`, `system`, `ebs` (ok, impaired, ...) and scheduled `events`."""
    seconds = body.get("impaired_seconds") or 0.0
    since = None if seconds < 0 else standin.home.now() - dt.timedelta(seconds=seconds)
    with standin.home.lock:
        status = _one(standin.home, body).status
        status.update({key: body[key] for key in ("instance", "system", "ebs", "events") if key in body})
        status["impaired_since"] = since
    return {"ok": True}


def interrupt(standin: StandIn, body: Body) -> Any:
    """The interruption warning goes to the queue; after `notice_seconds` (120) the instance is taken, unless `keep`."""
    world = standin.home
    with world.lock:
        instance = _one(world, body)
        eventbridge.send_event(
            standin.settings, eventbridge.spot_interruption(standin.settings, world.now(), instance.id)
        )
        if not body.get("keep"):
            world.doom(instance, float(body.get("notice_seconds", 120)))
    return {"ok": True}


def recommend_rebalance(standin: StandIn, body: Body) -> Any:
    with standin.home.lock:
        instance = _one(standin.home, body)
    eventbridge.send_event(standin.settings, eventbridge.rebalance(standin.settings, standin.home.now(), instance.id))
    return {"ok": True}


def announce_health_event(standin: StandIn, body: Body) -> Any:
    """An AWS Health event about `ids`; `detail` is laid over the usual one."""
    event = eventbridge.health_event(standin.settings, standin.home.now(), list(body["ids"]), **body.get("detail", {}))
    eventbridge.send_event(standin.settings, event)
    return {"arn": event["detail"]["eventArn"]}


def send_message(standin: StandIn, body: Body) -> Any:
    """Any message into the cluster's queue, as it is."""
    eventbridge.send_message(standin.settings, body["message"])
    return {"ok": True}


def count_messages(standin: StandIn, body: Body) -> Any:
    return {"queued": eventbridge.queued(standin.settings)}


def add_image(standin: StandIn, body: dict[str, Any]) -> Any:
    """Add a public image owned by Amazon (or `owner`), or change the one with this `id`; point `parameters` at it."""
    world = standin.home
    created = _moment(body.get("created")) or world.now()
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
        deprecation=_moment(body.get("deprecation")),
        public=bool(body.get("public", True)),
        tags=dict(body.get("tags", {})),
    )
    with world.lock:
        world.images[image.id] = image
    for name in body.get("parameters", ()):
        set_parameter(standin, name, image.id)
    return {"id": image.id}


def release(standin: StandIn, body: dict[str, Any]) -> Any:
    """A family's next release, for one Kubernetes minor version or all; the moving parameters point at it at once."""
    family, world = body["family"], standin.home
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}")
    found = released(family, body["version"], world.now() - dt.timedelta(hours=1), body.get("minor"))
    with world.lock:
        for one in found:
            world.images[one.image.id] = one.image
            for name in one.parameters:
                set_parameter(standin, name, one.image.id)
    return {"images": {one.image.name: one.image.id for one in found}}


def deprecate_image(standin: StandIn, body: dict[str, Any]) -> Any:
    with standin.home.lock:
        standin.home.images[body["id"]].deprecation = standin.home.now()
    return {"ok": True}


def remove_image(standin: StandIn, body: dict[str, Any]) -> Any:
    with standin.home.lock:
        del standin.home.images[body["id"]]
    return {"ok": True}


def _moment(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
