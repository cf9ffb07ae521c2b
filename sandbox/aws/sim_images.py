"""Images through the control API: another one, a new release of a family, one that is deprecated or gone."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.catalogue import FAMILIES, released
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
