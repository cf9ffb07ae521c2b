"""AWS errors as exceptions, and their HTTP status. Raised by every handler, rendered by `wire.render`."""

from __future__ import annotations

# Codes that do not answer 400, from the EC2 API reference's common errors and seen SDK behaviour.
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
    """An error that a client of AWS sees: its code, its text and its HTTP status."""

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
