"""Launch templates: create, version, describe and delete, with separate error codes for IDs and for names.

Requests name a template by ID or name, and a version by number, `$Latest` or `$Default`.
"""

from __future__ import annotations

import re
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, check_user_data, new_id, require_well_formed
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate, tag_facts
from tenure.sandbox.aws.ec2.fleet.launch import perform_once
from tenure.sandbox.aws.ec2.records import LaunchTemplate
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, invalid_value, missing_parameter

MISSING = "At least one of the launch templates specified in the request does not exist."


def find_template(environment: Environment, specification: dict[str, Any]) -> LaunchTemplate:
    """Raises InvalidLaunchTemplateName.NotFoundException or InvalidLaunchTemplateId.NotFound."""
    template_id, name = specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName")
    if template_id and name:
        raise bad_combination("Only one of launch template ID or launch template name may be specified.")
    if template_id:
        require_well_formed([template_id], "lt")
        found = environment.templates.get(template_id)
        if found is None or not is_known(environment, found):
            raise missing_id()
        return found
    if not name:
        raise missing_parameter("LaunchTemplateName")
    found = environment.templates.get(environment.template_names.get(name, ""))
    if found is None or not is_known(environment, found):
        raise missing_name()
    return found


def is_known(environment: Environment, template: LaunchTemplate) -> bool:
    """Whether a new template is visible already, as a setting can delay it."""
    return template.visible_at <= environment.clock.now()


def missing_id() -> AwsError:
    return AwsError("InvalidLaunchTemplateId.NotFound", MISSING)


def missing_name() -> AwsError:
    return AwsError("InvalidLaunchTemplateName.NotFoundException", MISSING)


def find_version(template: LaunchTemplate, version_name: str) -> dict[str, Any]:
    """Raises InvalidLaunchTemplateId.VersionNotFound."""
    if version_name == "$Latest":
        return template.versions[-1]
    number = template.default_version if version_name == "$Default" else version_name
    for version in template.versions:
        if str(version["VersionNumber"]) == str(number):
            return version
    raise AwsError(
        "InvalidLaunchTemplateId.VersionNotFound",
        f"Could not find launch template version {version_name} for launch template {template.id}.",
    )


def resolve_template(environment: Environment, specification: dict[str, Any]) -> tuple[LaunchTemplate, dict[str, Any]]:
    template = find_template(environment, specification)
    return template, find_version(template, specification.get("Version") or "$Default")


NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
FILTERS = frozenset({"create-time", "launch-template-name", "tag-key", "tag-value"})
VERSION_FILTERS = frozenset({"is-default-version", "image-id", "instance-type", "create-time"})


def create_launch_template(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    name, data = request.get("LaunchTemplateName"), request.get("LaunchTemplateData")
    if not name:
        raise missing_parameter("LaunchTemplateName")
    if not NAME.fullmatch(name):
        raise AwsError("InvalidLaunchTemplateName.MalformedException", f"The launch template name {name} is invalid.")
    if data is None:
        raise missing_parameter("LaunchTemplateData")
    check_user_data(data.get("UserData"))
    tags = read_specifications(request.get("TagSpecifications"))
    if set(tags) - {"launch-template"}:
        raise invalid_value("Tag specification resource type must be launch-template")
    call.permit_create("CreateLaunchTemplate", "launch-template", tags.get("launch-template", {}))
    if request.get("DryRun"):
        raise dry_run_ok()
    return perform_once(environment, "CreateLaunchTemplate", request, lambda: _create(call, name, data, tags))


def _create(call: Call, name: str, data: dict[str, Any], tags: dict[str, dict[str, str]]) -> dict[str, Any]:
    environment = call.environment
    if name in environment.template_names:
        raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
    template = LaunchTemplate(
        id=new_id("lt"),
        name=name,
        created=environment.now().replace(microsecond=0),
        created_by=f"arn:aws:iam::{environment.account}:root",
        tags=tags.get("launch-template", {}),
        versions=[],
        visible_at=environment.clock.now() + environment.settings.template_visibility_seconds,
    )
    template.versions.append(_make_version(template, 1, data, call.params.get("VersionDescription")))
    environment.templates[template.id] = template
    environment.template_names[name] = template.id
    return {"LaunchTemplate": _template_view(template)}


def _make_version(template: LaunchTemplate, number: int, data: dict[str, Any], text: str | None) -> dict[str, Any]:
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "VersionNumber": number,
        "VersionDescription": text,
        "CreateTime": template.created,
        "CreatedBy": template.created_by,
        "LaunchTemplateData": data,
        "Operator": {"Managed": False},
    }


def create_launch_template_version(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    template = find_template(environment, request)
    data = request.get("LaunchTemplateData")
    if data is None:
        raise missing_parameter("LaunchTemplateData")
    check_user_data(data.get("UserData"))
    call.permit_each("CreateLaunchTemplateVersion", "launch-template", {template.id: template.tags})
    if request.get("DryRun"):
        raise dry_run_ok()
    source = request.get("SourceVersion")
    base = find_version(template, source)["LaunchTemplateData"] if source else {}
    number = template.versions[-1]["VersionNumber"] + 1
    version = _make_version(template, number, {**base, **data}, request.get("VersionDescription"))
    template.versions.append(version)
    return {"LaunchTemplateVersion": {**version, "DefaultVersion": number == template.default_version}}


def modify_launch_template(call: Call) -> dict[str, Any]:
    template = find_template(call.environment, call.params)
    call.permit_each("ModifyLaunchTemplate", "launch-template", {template.id: template.tags})
    default_version = call.params.get("DefaultVersion")
    if default_version:
        template.default_version = find_version(template, default_version)["VersionNumber"]
    return {"LaunchTemplate": _template_view(template)}


def describe_launch_templates(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids, names = request.get("LaunchTemplateIds") or [], request.get("LaunchTemplateNames") or []
    if ids and names:
        raise bad_combination("Only one of launch template IDs or launch template names may be specified.")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = [t for t in _select_templates(environment, ids, names) if matches_filters(filters, _filter_facts(t))]
    chosen.sort(key=_sort_key)
    page_items, token = paginate(chosen, request, _sort_key, low=1, high=200, unpaged=200)
    return {"LaunchTemplates": [_template_view(t) for t in page_items], "NextToken": token}


def _select_templates(environment: Environment, ids: list[str], names: list[str]) -> list[LaunchTemplate]:
    require_well_formed(ids, "lt")
    known = {one.id: one for one in environment.templates.values() if is_known(environment, one)}
    if any(one not in known for one in ids):
        raise missing_id()
    if any(environment.template_names.get(one) not in known for one in names):
        raise missing_name()
    selected_ids = ids or [environment.template_names[name] for name in names]
    return [known[one] for one in dict.fromkeys(selected_ids)] if selected_ids else list(known.values())


def _sort_key(template: LaunchTemplate) -> tuple[str, str]:
    return template.name, template.id


def _filter_facts(template: LaunchTemplate) -> dict[str, list[str]]:
    created = template.created.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {"launch-template-name": [template.name], "create-time": [created], **tag_facts(template.tags)}


def _template_view(template: LaunchTemplate) -> dict[str, Any]:
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "CreateTime": template.created,
        "CreatedBy": template.created_by,
        "DefaultVersionNumber": template.default_version,
        "LatestVersionNumber": template.versions[-1]["VersionNumber"],
        "Tags": tag_list(template.tags),
        "Operator": {"Managed": False},
    }


def describe_launch_template_versions(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    filters = compile_filters(request.get("Filters"), VERSION_FILTERS)
    version_names = request.get("Versions") or []
    if request.get("LaunchTemplateId") or request.get("LaunchTemplateName"):
        templates = [find_template(environment, request)]
    elif set(version_names) <= {"$Latest", "$Default"} and version_names:
        templates = sorted(environment.templates.values(), key=_sort_key)
    else:
        raise missing_parameter("LaunchTemplateId")
    found = [version for t in templates for version in _select_versions(t, version_names)]
    page_items, token = paginate(found, request, _version_order, low=1, high=200, unpaged=200)
    views = [
        _version_view(environment, version)
        for version in page_items
        if matches_filters(filters, _version_facts(environment, version))
    ]
    return {"LaunchTemplateVersions": views, "NextToken": token}


def _select_versions(template: LaunchTemplate, version_names: list[str]) -> list[dict[str, Any]]:
    if not version_names:
        return template.versions
    chosen = {v["VersionNumber"]: v for v in (find_version(template, one) for one in version_names)}
    return [chosen[number] for number in sorted(chosen)]


def _version_order(version: dict[str, Any]) -> tuple[str, int]:
    return version["LaunchTemplateName"], version["VersionNumber"]


def _version_view(environment: Environment, version: dict[str, Any]) -> dict[str, Any]:
    default = environment.templates[version["LaunchTemplateId"]].default_version
    return {**version, "DefaultVersion": version["VersionNumber"] == default}


def _version_facts(environment: Environment, version: dict[str, Any]) -> dict[str, list[str]]:
    data = version["LaunchTemplateData"]
    return {
        "is-default-version": [str(_version_view(environment, version)["DefaultVersion"]).lower()],
        "image-id": [data.get("ImageId", "")],
        "instance-type": [data.get("InstanceType", "")],
    }


def delete_launch_template(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    template = find_template(environment, request)
    call.permit_each("DeleteLaunchTemplate", "launch-template", {template.id: template.tags})
    if request.get("DryRun"):
        raise dry_run_ok()
    del environment.templates[template.id], environment.template_names[template.name]
    return {"LaunchTemplate": _template_view(template)}
