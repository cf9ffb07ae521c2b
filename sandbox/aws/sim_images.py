"""Publishing another image through the control API: a new release that drifts nodes, or one that is deprecated."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.ec2.ids import new_id
from sandbox.aws.ec2.records import Image
from sandbox.aws.seed import set_parameter
from sandbox.aws.standin import StandIn


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
        tags=dict(body.get("tags", {})),
    )
    with world.lock:
        world.images[image.id] = image
    for name in body.get("parameters", ()):
        set_parameter(standin, name, image.id)
    return {"id": image.id}


def _moment(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
