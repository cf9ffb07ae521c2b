"""Maps error codes of AWS and botocore's errors to faults of the model.

The message is only used for two codes that AWS uses for several causes.
"""

from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


LAUNCH_TEMPLATE_NOT_FOUND: Final = _codes(
    "InvalidLaunchTemplateName.NotFoundException InvalidLaunchTemplateId.NotFound"
)
NOT_FOUND: Final = LAUNCH_TEMPLATE_NOT_FOUND | _codes(
    """
    InvalidCapacityReservationId.NotFound InvalidInstanceID.NotFound InvalidPlacementGroup.Unknown QueueDoesNotExist
    AWS.SimpleQueueService.NonExistentQueue NoSuchEntity NotFoundException ParameterNotFound
    ResourceNotFoundException InvalidInstanceID.Malformed InvalidCapacityReservationId.Malformed
    """
)
"""An object can have any text as the ID of its instance or reservation, and must not make a batch of IDs fail."""
ALREADY_EXISTS: Final = _codes("EntityAlreadyExists InvalidLaunchTemplateName.AlreadyExistsException")
SERVICE_LINKED_ROLE: Final = _codes("AuthFailure.ServiceLinkedRoleCreationNotPermitted")
SUBNET_FULL: Final = _codes("InsufficientFreeAddressesInSubnet")
RESERVATION_UNUSABLE: Final = _codes(
    """
    ReservationCapacityExceeded ReservationCapacityIncompatible InvalidCapacityReservationState
    InvalidCapacityReservationState.Unavailable InvalidCapacityReservationId.NotFound
    """
)
"""The reservation is full or has changed, so another offering is launched instead."""
INSUFFICIENT: Final = (
    SUBNET_FULL
    | SERVICE_LINKED_ROLE
    | RESERVATION_UNUSABLE
    | _codes(
        """
        InsufficientInstanceCapacity MaxSpotInstanceCountExceeded VcpuLimitExceeded UnfulfillableCapacity Unsupported
        MaxFleetCountExceeded SpotMaxPriceTooLow
        """
    )
)
THROTTLED: Final = _codes(
    """
    RequestLimitExceeded Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException
    EC2ThrottledException BandwidthLimitExceeded PriorRequestNotComplete LimitExceededException OverLimit
    ProvisionedThroughputExceededException TransactionInProgressException TooManyRequestsException SlowDown
    """
)
"""Includes botocore's list (`botocore.retries.standard`)."""
CLOCK: Final = _codes("RequestExpired RequestTimeTooSkewed RequestInTheFuture InvalidSignatureException")
"""AWS rejects a request whose time differs from its own by more than five minutes (some services: fifteen)."""
FORBIDDEN: Final = _codes(
    """
    UnauthorizedOperation AccessDenied AccessDeniedException AuthFailure InvalidClientTokenId
    UnrecognizedClientException SignatureDoesNotMatch OptInRequired
    """
)
SERVER: Final = _codes(
    """
    InternalError InternalFailure InternalServerError InternalServiceError ServiceUnavailable Unavailable
    RequestTimeout RequestTimeoutException ExpiredToken ExpiredTokenException
    """
)
TIMEOUT: Final = _codes("RequestTimeout RequestTimeoutException")
_SLOW_DOWN_STATUSES: Final = (408, 429)
CONFLICT: Final = _codes(
    """
    ConcurrentModification DeleteConflict EntityTemporarilyUnmodifiable IncorrectState LimitExceeded
    """
)
DRY_RUN: Final = "DryRunOperation"
BOTO_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError)
"""Every error of a botocore call; ResponseParserError is raised for truncated responses and responses not from AWS."""
TOKEN_MISMATCH: Final = _codes("IdempotentParameterMismatch IdempotentInstanceTerminated")

_PROFILE_TEXT: Final = "Invalid IAM Instance Profile"


def names_missing_profile(fault: Fault) -> bool:
    """Whether EC2 does not know the instance profile, possibly not yet."""
    return fault.code == "InvalidParameterValue" and _PROFILE_TEXT in fault.message


def fault_of(error: Exception, operation: str) -> Fault:
    if isinstance(error, ClientError):
        return _fault_of_response(error, operation)
    text = f"{operation}: {error}"
    if isinstance(error, ParamValidationError):
        return BadInput(text, code="ParamValidation")
    if isinstance(error, NoCredentialsError | NoAuthTokenError):
        return Forbidden(text, code="NoCredentials")
    is_unreachable = isinstance(error, NoConnectionError | HTTPClientError)
    return TryLater(text, code=type(error).__name__, is_unreachable=is_unreachable)


def is_slowing_calls(fault: Fault) -> bool:
    """Whether AWS throttled the call, or responded with any 408 or 429. `fault`: raised from the error of botocore."""
    if isinstance(fault, Throttled) or fault.code in TIMEOUT:
        return True
    cause = fault.__cause__
    return isinstance(cause, ClientError) and _status_of(cause) in _SLOW_DOWN_STATUSES


def _status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _fault_of_response(error: ClientError, operation: str) -> Fault:
    error_body = error.response.get("Error", {})
    code, status = error_body.get("Code", ""), _status_of(error)
    text = f"{operation}: {error_body.get('Message', '')}"
    if code in CLOCK or (code == "SignatureDoesNotMatch" and _is_clock_skew(text)):
        return Throttled(f"{text}; check the worker's clock", code=code)
    return _class_of(code, status)(text, code=code)


def _is_clock_skew(text: str) -> bool:
    return "Signature expired" in text or "Signature not yet current" in text


def _class_of(code: str, status: int) -> type[Fault]:
    for codes, kind in _CLASSES:
        if code in codes:
            return kind
    if code.endswith((".NotFound", ".NotFoundException")):
        return NotFound
    if status == 429:
        return Throttled
    return TryLater if status == 408 or status >= 500 else BadInput


_CLASSES: Final[tuple[tuple[frozenset[str], type[Fault]], ...]] = (
    (THROTTLED, Throttled),
    (NOT_FOUND, NotFound),
    (FORBIDDEN, Forbidden),
    (SERVER, TryLater),
    (CONFLICT | ALREADY_EXISTS, Conflict),
)
