"""sts:GetCallerIdentity: the worker's key is a session of the controller's role, any other key a user of its name."""

from __future__ import annotations

import uuid
from xml.sax.saxutils import escape

from sandbox.aws.request import AwsCall
from sandbox.aws.settings import WORKER_KEY
from sandbox.aws.standin import StandIn
from sandbox.aws.wire.render import Response, xml_response

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


def get_caller_identity(standin: StandIn, call: AwsCall) -> Response:
    settings = standin.settings
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
