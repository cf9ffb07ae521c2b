"""Required permissions of a bound key's calls to services other than EC2: action, resource and condition keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.iam.authorizer import Context, IamAuthorizer, Tags, request_context
from tenure.sandbox.aws.state.instance_profiles import profile_named, role_arn
from tenure.sandbox.aws.wire.responses import AwsError

AccessRequest = tuple[str, Context]
JSON_SERVICES = frozenset({"ssm", "eks", "pricing", "arc-zonal-shift", "events", "sqs", "servicequotas"})

RIGHTS = {("sqs", "DeleteMessageBatch"): "DeleteMessage"}
"""Actions that AWS authorizes under the name of another action."""


def check_service_call(authorizer: IamAuthorizer, call: AwsCall) -> None:
    """Raises the access-denied error of the service; that of EC2 for EC2 actions that moto handles."""
    if call.service == "sts":
        return
    if call.service == "ec2":
        authorizer.authorize(f"ec2:{call.action}", "*")
        return
    resource, context = RESOURCES.get(call.service, _any_resource)(authorizer, call)
    action = f"{call.service}:{RIGHTS.get((call.service, call.action), call.action)}"
    if not authorizer.is_allowed(action, resource, context):
        raise _access_denied(authorizer, call, action, resource)
    if (call.service, call.action) == ("iam", "AddRoleToInstanceProfile"):
        _pass_role(authorizer, call)


def _pass_role(authorizer: IamAuthorizer, call: AwsCall) -> None:
    name = call.form.get("RoleName", "")
    role = role_arn(authorizer.account, name) or f"arn:aws:iam::{authorizer.account}:role/{name}"
    if not authorizer.is_allowed("iam:PassRole", role, {"iam:passedtoservice": ["ec2.amazonaws.com"]}):
        raise _access_denied(authorizer, call, "iam:PassRole", role)


def _access_denied(authorizer: IamAuthorizer, call: AwsCall, action: str, resource: str) -> AwsError:
    code = "AccessDeniedException" if call.service in JSON_SERVICES else "AccessDenied"
    text = f"User is not authorized to perform: {action} on resource: {resource}"
    return AwsError(code, text, 400 if code == "AccessDeniedException" else 403)


def _any_resource(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    return "*", {}


def _iam_request(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    form, prefix = call.form, f"arn:aws:iam::{authorizer.account}"
    name = form.get("InstanceProfileName")
    if name:
        stored = profile_named(authorizer.account, name)
        path = stored.path if stored is not None else form.get("Path", "/")
        present = _profile_tags(stored) if stored is not None and call.action != "CreateInstanceProfile" else {}
        context = request_context(_request_tags(form))
        context |= {f"aws:resourcetag/{key.lower()}": [value] for key, value in present.items()}
        return f"{prefix}:instance-profile{path}{name}", context
    if form.get("RoleName"):
        return f"{prefix}:role/{form['RoleName']}", {}
    return "*", {}


def _profile_tags(profile: Any) -> Tags:
    return {tag["Key"]: tag["Value"] for tag in profile.tags or ()}


def _request_tags(form: dict[str, str]) -> Tags:
    keys = {k.split(".")[2]: v for k, v in form.items() if k.startswith("Tags.member.") and k.endswith(".Key")}
    return {key: form.get(f"Tags.member.{number}.Value", "") for number, key in keys.items()}


def _ssm_request(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    name = str(call.parameters.get("Name", "*"))
    if name.startswith("arn:"):
        return name, {}
    owner = "" if name.startswith("/aws/service/") else authorizer.account
    return f"arn:aws:ssm:{authorizer.region}:{owner}:parameter/{name.lstrip('/')}", {}


def _sqs_request(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    name = str(call.parameters.get("QueueName") or call.parameters.get("QueueUrl", "*").rsplit("/", 1)[-1])
    return f"arn:aws:sqs:{authorizer.region}:{authorizer.account}:{name}", {}


def _eks_request(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    if not call.path_argument:
        return "*", {}
    return f"arn:aws:eks:{authorizer.region}:{authorizer.account}:cluster/{call.path_argument}", {}


def _zonal_shift(authorizer: IamAuthorizer, call: AwsCall) -> AccessRequest:
    return call.path_argument or "*", {"arc-zonal-shift:resourceidentifier": [call.path_argument]}


RESOURCES: dict[str, Callable[[IamAuthorizer, AwsCall], AccessRequest]] = {
    "iam": _iam_request,
    "ssm": _ssm_request,
    "sqs": _sqs_request,
    "eks": _eks_request,
    "arc-zonal-shift": _zonal_shift,
}
