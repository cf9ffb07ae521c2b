"""Finds the launch template and the version that a request names, by id or name, number, `$Latest` or `$Default`."""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.ids import require_well_formed
from sandbox.aws.ec2.records import LaunchTemplate
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, bad_combination, missing_parameter

MISSING = "At least one of the launch templates specified in the request does not exist."


def find_template(world: World, specification: dict[str, Any]) -> LaunchTemplate:
    """Raises InvalidLaunchTemplateName.NotFoundException or InvalidLaunchTemplateId.NotFound."""
    template_id, name = specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName")
    if template_id and name:
        raise bad_combination("Only one of launch template ID or launch template name may be specified.")
    if template_id:
        require_well_formed([template_id], "lt")
        found = world.templates.get(template_id)
        if found is None or not is_known(world, found):
            raise missing_id()
        return found
    if not name:
        raise missing_parameter("LaunchTemplateName")
    found = world.templates.get(world.template_names.get(name, ""))
    if found is None or not is_known(world, found):
        raise missing_name()
    return found


def is_known(world: World, template: LaunchTemplate) -> bool:
    """A fresh template is not known everywhere at once, if the settings say so."""
    return template.visible_at <= world.clock.now()


def missing_id() -> AwsError:
    return AwsError("InvalidLaunchTemplateId.NotFound", MISSING)


def missing_name() -> AwsError:
    return AwsError("InvalidLaunchTemplateName.NotFoundException", MISSING)


def find_version(template: LaunchTemplate, wanted: str) -> dict[str, Any]:
    """Raises InvalidLaunchTemplateId.VersionNotFound."""
    if wanted == "$Latest":
        return template.versions[-1]
    number = template.default_version if wanted == "$Default" else wanted
    for version in template.versions:
        if str(version["VersionNumber"]) == str(number):
            return version
    raise AwsError(
        "InvalidLaunchTemplateId.VersionNotFound",
        f"Could not find launch template version {wanted} for launch template {template.id}.",
    )


def resolve_template(world: World, specification: dict[str, Any]) -> tuple[LaunchTemplate, dict[str, Any]]:
    template = find_template(world, specification)
    return template, find_version(template, specification.get("Version") or "$Default")
