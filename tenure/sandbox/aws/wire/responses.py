"""AWS errors as exceptions, and responses. An AwsError is rendered for its protocol: EC2 XML, query XML, or JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

# Codes with a status other than 400, from the common errors of the EC2 API reference and from SDK behaviour.
HTTP_STATUS = {
    "AuthFailure": 401,
    "UnauthorizedOperation": 403,
    "AccessDenied": 403,
    "AccessDeniedException": 403,
    "NoSuchEntity": 404,
    "ResourceNotFoundException": 404,
    "DryRunOperation": 412,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
}


class AwsError(Exception):
    """An error for an AWS client: code, text and HTTP status."""

    def __init__(self, code: str, message: str, http: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.http = http if http is not None else HTTP_STATUS.get(code, 400)


def missing_parameter(name: str) -> AwsError:
    return AwsError("MissingParameter", f"The request must contain the parameter {name}")


def invalid_value(message: str) -> AwsError:
    return AwsError("InvalidParameterValue", message)


def bad_combination(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message)


def dry_run_ok() -> AwsError:
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")


QUERY_SERVICES = frozenset({"iam", "sts", "sns", "autoscaling", "elasticloadbalancing", "cloudformation"})
REST_JSON_SERVICES = frozenset({"eks", "arc-zonal-shift"})


@dataclass(frozen=True)
class Response:
    """A response. `cut`: close the connection without a response."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


def xml_response(body: bytes, status: int = 200) -> Response:
    return Response(status, body, {"Content-Type": "text/xml;charset=UTF-8"})


def json_response(value: object, status: int = 200, content_type: str = "application/json") -> Response:
    return Response(status, json.dumps(value).encode(), {"Content-Type": content_type})


def aws_json(value: object) -> Response:
    return json_response(value, content_type="application/x-amz-json-1.1")


def error_response(service: str, error: AwsError) -> Response:
    if service == "ec2":
        return xml_response(_ec2_body(error), error.http)
    if service in QUERY_SERVICES:
        return xml_response(_query_body(error), error.http)
    return _json_error(service, error)


def _ec2_body(error: AwsError) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    ).encode()


def _query_body(error: AwsError) -> bytes:
    kind = "Receiver" if error.http >= 500 else "Sender"
    return (
        f"<ErrorResponse><Error><Type>{kind}</Type><Code>{escape(error.code)}</Code>"
        f"<Message>{escape(error.message)}</Message></Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    ).encode()


def _json_error(service: str, error: AwsError) -> Response:
    body = json.dumps({"__type": error.code, "code": error.code, "message": error.message}).encode()
    headers = {"x-amzn-ErrorType": error.code, "x-amzn-RequestId": str(uuid.uuid4())}
    rest = service in REST_JSON_SERVICES
    headers["Content-Type"] = "application/json" if rest else "application/x-amz-json-1.1"
    return Response(error.http, body, headers)
