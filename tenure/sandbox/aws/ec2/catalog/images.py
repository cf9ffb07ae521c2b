"""Machine images: DescribeImages with filters, owners and pages; register, deprecate and deregister."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, new_id, require_well_formed
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate, tag_facts
from tenure.sandbox.aws.ec2.network.zones import may_use
from tenure.sandbox.aws.ec2.records import Image
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, missing_parameter
from tenure.sandbox.aws.wire.xml import iso

FILTERS = frozenset(
    {
        "architecture", "creation-date", "description", "image-id", "image-type", "is-public", "name", "owner-alias",
        "owner-id", "platform", "root-device-name", "root-device-type", "state", "tag-key", "tag-value",
        "virtualization-type", "hypervisor", "ena-support", "block-device-mapping.device-name",
        "block-device-mapping.volume-size", "block-device-mapping.volume-type", "deprecation-time",
    }
)  # fmt: skip


def describe_images(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids = request.get("ImageIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter imageIdsSet cannot be used with the parameter maxResults")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    owners = frozenset(request.get("Owners") or ())
    deprecated_too = request.get("IncludeDeprecated") or bool(ids)
    now = environment.now()
    chosen = [
        image
        for image in _select_images(environment, ids)
        if may_use(environment, image)
        and (deprecated_too or image.deprecation is None or image.deprecation > now)
        and (not owners or _is_owned_by(environment, image, owners))
        and matches_filters(filters, _filter_facts(image))
    ]
    chosen.sort(key=_sort_key)
    page_items, token = paginate(chosen, request, _sort_key, low=1, high=1000)
    return {"Images": [_image_view(environment, image) for image in page_items], "NextToken": token}


def _sort_key(image: Image) -> str:
    return image.id


def _select_images(environment: Environment, ids: list[str]) -> list[Image]:
    require_well_formed(ids, "ami")
    missing = [i for i in ids if i not in environment.images]
    if missing:
        verb = "ids" if len(missing) > 1 else "id"
        tail = "do not exist" if len(missing) > 1 else "does not exist"
        raise AwsError("InvalidAMIID.NotFound", f"The image {verb} '[{', '.join(missing)}]' {tail}")
    return [environment.images[i] for i in dict.fromkeys(ids)] if ids else list(environment.images.values())


def _is_owned_by(environment: Environment, image: Image, owners: frozenset[str]) -> bool:
    names = {image.owner, image.owner_alias}
    if image.owner == environment.account:
        names.add("self")
    return bool(names & owners)


def _filter_facts(image: Image) -> dict[str, list[str]]:
    ebs = [mapping.get("Ebs", {}) for mapping in image.volumes]
    return {
        "architecture": [image.architecture],
        "creation-date": [iso(image.created)],
        "deprecation-time": [iso(image.deprecation)] if image.deprecation else [],
        "description": [image.description],
        "image-id": [image.id],
        "image-type": ["machine"],
        "is-public": [str(image.public).lower()],
        "name": [image.name],
        "owner-alias": [image.owner_alias] if image.owner_alias else [],
        "owner-id": [image.owner],
        "platform": [image.platform] if image.platform else [],
        "root-device-name": [image.root_device],
        "root-device-type": ["ebs"],
        "state": [image.state],
        "virtualization-type": ["hvm"],
        "hypervisor": ["xen"],
        "ena-support": ["true"],
        "block-device-mapping.device-name": [mapping["DeviceName"] for mapping in image.volumes],
        "block-device-mapping.volume-size": [str(e.get("VolumeSize", "")) for e in ebs],
        "block-device-mapping.volume-type": [e.get("VolumeType", "") for e in ebs],
        **tag_facts(image.tags),
    }


def _image_view(environment: Environment, image: Image) -> dict[str, Any]:
    return {
        "ImageId": image.id,
        "ImageLocation": f"{image.owner_alias or image.owner}/{image.name}",
        "ImageType": "machine",
        "Name": image.name,
        "Description": image.description,
        "Architecture": image.architecture,
        "CreationDate": iso(image.created),
        "DeprecationTime": iso(image.deprecation) if image.deprecation else None,
        "OwnerId": image.owner,
        "ImageOwnerAlias": image.owner_alias,
        "Public": image.public,
        "State": image.state,
        "Platform": image.platform,
        "PlatformDetails": "Windows" if image.platform else "Linux/UNIX",
        "UsageOperation": "RunInstances:0002" if image.platform else "RunInstances",
        "RootDeviceName": image.root_device,
        "RootDeviceType": "ebs",
        "BlockDeviceMappings": image.volumes,
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": True,
        "SriovNetSupport": "simple",
        "BootMode": "uefi-preferred" if image.architecture == "x86_64" else "uefi",
        "ImdsSupport": "v2.0",
        "Tags": tag_list(image.tags),
    }


def register_image(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    name = request.get("Name")
    if not name:
        raise missing_parameter("Name")
    if any(image.name == name and image.owner == environment.account for image in environment.images.values()):
        raise AwsError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI")
    root = request.get("RootDeviceName", "/dev/xvda")
    image = Image(
        id=new_id("ami"),
        name=name,
        owner=environment.account,
        owner_alias=None,
        architecture=request.get("Architecture", "x86_64"),
        created=environment.now(),
        description=request.get("Description", ""),
        root_device=root,
        volumes=request.get("BlockDeviceMappings") or [{"DeviceName": root, "Ebs": {"VolumeSize": 8}}],
        public=False,
        tags=read_specifications(request.get("TagSpecifications")).get("image", {}),
    )
    environment.images[image.id] = image
    return {"ImageId": image.id}


def deregister_image(call: Call) -> dict[str, Any]:
    image = _require_image(call)
    del call.environment.images[image.id]
    return {"Return": True}


def enable_image_deprecation(call: Call) -> dict[str, Any]:
    image = _require_image(call)
    when = call.params.get("DeprecateAt")
    if not when:
        raise missing_parameter("DeprecateAt")
    image.deprecation = dt.datetime.fromisoformat(when.replace("Z", "+00:00"))
    return {"Return": True}


def disable_image_deprecation(call: Call) -> dict[str, Any]:
    _require_image(call).deprecation = None
    return {"Return": True}


def _require_image(call: Call) -> Image:
    image_id = call.params.get("ImageId")
    if not image_id:
        raise missing_parameter("ImageId")
    return _select_images(call.environment, [image_id])[0]
