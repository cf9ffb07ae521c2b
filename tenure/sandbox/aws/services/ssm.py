"""ssm:GetParameter by name or ARN, and sts:GetCallerIdentity.

ARNs of AWS's own parameters have no account, which moto does not support. The worker's key belongs to a session of the
controller's role, any other key to a user with its name.
"""

from __future__ import annotations

import re
import uuid
from typing import Final
from xml.sax.saxutils import escape

from moto.ssm.models import ssm_backends

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.settings import WORKER_KEY
from tenure.sandbox.aws.wire.responses import AwsError, Response, aws_json, xml_response

_ARN: Final = re.compile(r"arn:[\w-]+:ssm:(?P<region>[\w-]+):(?P<account>\d*):parameter(?P<name>/.+)")
_NAME: Final = re.compile(r"[\w./:-]+")


def get_parameter(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises ParameterNotFound, and ValidationException for an invalid name."""
    settings, requested = fake_aws.settings, str(call.parameters.get("Name", ""))
    found = _ARN.fullmatch(requested)
    if not found and not _NAME.fullmatch(requested):
        raise AwsError("ValidationException", f"Invalid parameter name {requested!r}.")
    name, region = (found["name"], found["region"]) if found else (requested, call.region)
    if found and found["account"] not in ("", settings.account):
        raise AwsError("ParameterNotFound", f"Parameter {requested} not found.")
    parameter = ssm_backends[settings.account][region].get_parameter(name)
    if parameter is None:
        raise AwsError("ParameterNotFound", f"Parameter {requested} not found.")
    described = parameter.response_object(decrypt=bool(call.parameters.get("WithDecryption")), region=region)
    return aws_json({"Parameter": described | {"LastModifiedDate": described["LastModifiedDate"].timestamp()}})


NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


def get_caller_identity(fake_aws: FakeAws, call: AwsCall) -> Response:
    settings = fake_aws.settings
    if call.access_key == WORKER_KEY:
        name = settings.controller_role()
        arn, user = f"arn:aws:sts::{settings.account}:assumed-role/{name}/worker", "AROASTANDIN000000001:worker"
    else:
        arn, user = f"arn:aws:iam::{settings.account}:user/{call.access_key}", "AIDASTANDIN000000001"
    return xml_response(
        f'<GetCallerIdentityResponse xmlns="{NAMESPACE}"><GetCallerIdentityResult><Arn>{escape(arn)}</Arn>'
        f"<UserId>{user}</UserId><Account>{settings.account}</Account></GetCallerIdentityResult>"
        f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></GetCallerIdentityResponse>".encode()
    )
