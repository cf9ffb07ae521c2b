"""ssm:GetParameter by name or ARN. AWS's own parameters belong to no account, and moto knows no such ARN."""

from __future__ import annotations

import re
from typing import Final

from moto.ssm.models import ssm_backends

from sandbox.aws.request import AwsCall
from sandbox.aws.standin import StandIn
from sandbox.aws.wire.errors import AwsError
from sandbox.aws.wire.render import Response, aws_json

_ARN: Final = re.compile(r"arn:[\w-]+:ssm:(?P<region>[\w-]+):(?P<account>\d*):parameter(?P<name>/.+)")
_NAME: Final = re.compile(r"[\w./:-]+")


def get_parameter(standin: StandIn, call: AwsCall) -> Response:
    """Raises ParameterNotFound, and ValidationException for what can be no name."""
    settings, asked = standin.settings, str(call.parameters.get("Name", ""))
    found = _ARN.fullmatch(asked)
    if not found and not _NAME.fullmatch(asked):
        raise AwsError("ValidationException", f"Invalid parameter name {asked!r}.")
    name, region = (found["name"], found["region"]) if found else (asked, call.region)
    if found and found["account"] not in ("", settings.account):
        raise AwsError("ParameterNotFound", f"Parameter {asked} not found.")
    parameter = ssm_backends[settings.account][region].get_parameter(name)
    if parameter is None:
        raise AwsError("ParameterNotFound", f"Parameter {asked} not found.")
    shown = parameter.response_object(decrypt=bool(call.parameters.get("WithDecryption")), region=region)
    return aws_json({"Parameter": shown | {"LastModifiedDate": shown["LastModifiedDate"].timestamp()}})
