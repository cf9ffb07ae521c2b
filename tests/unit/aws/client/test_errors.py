"""AWS error codes, and the faults and launch failure reasons that they map to."""

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError

from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import INSUFFICIENT, fault_of, names_missing_profile
from tenure.aws.instance.launch_errors import create_error_reason, error_rank, error_remedy
from tenure.aws.settings import AwsSettings
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater

OTHER_THROTTLING = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestThrottledException",
    "TooManyRequestsException",
)


def client_error(code: str, status: int = 400, message: str = "") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "CreateFleet",
    )


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("ThrottlingException", 400, Throttled),
        *((code, 400, Throttled) for code in OTHER_THROTTLING),
        *((code, 408, TryLater) for code in ("RequestTimeout", "RequestTimeoutException", "Unheard")),
        ("Unheard", 429, Throttled),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidInstanceID.Malformed", 400, NotFound),
        ("InvalidLaunchTemplateName.NotFoundException", 400, NotFound),
        ("InvalidSubnetID.NotFound", 400, NotFound),
        ("NoSuchEntity", 404, NotFound),
        ("ParameterNotFound", 400, NotFound),
        ("UnauthorizedOperation", 403, Forbidden),
        ("AccessDenied", 403, Forbidden),
        ("InternalError", 500, TryLater),
        ("Unheard", 502, TryLater),
        ("Unavailable", 503, TryLater),
        ("EntityAlreadyExists", 409, Conflict),
        ("DeleteConflict", 409, Conflict),
        ("IdempotentParameterMismatch", 400, BadInput),
        ("InvalidParameterValue", 400, BadInput),
        ("InvalidUserData.Malformed", 400, BadInput),
    ],
)
def test_error_codes_map_to_faults(code: str, status: int, kind: type[Fault]) -> None:
    fault = fault_of(client_error(code, status, "said so"), "create_fleet")
    assert type(fault) is kind
    assert fault.code == code
    assert fault.message == "create_fleet: said so"


@pytest.mark.parametrize(
    ("code", "status", "is_slowed"),
    [
        ("RequestLimitExceeded", 503, True),
        ("RequestTimeout", 400, True),
        ("RequestTimeoutException", 408, True),
        ("Unheard", 408, True),
        ("Unheard", 429, True),
        ("ServiceUnavailable", 429, True),
        ("ServiceUnavailable", 503, False),
        ("InvalidParameterValue", 400, False),
    ],
)
async def test_throttling_and_any_408_or_429_slow_calls_down(code: str, status: int, is_slowed: bool) -> None:
    slowed = list[str]()
    clients = AwsClients(AwsSettings(region="us-west-2", cluster_name="demo"), observe_throttled=slowed.append)
    bucket = clients._buckets.bucket_for("create_fleet")
    before = bucket.per_second

    def create_fleet() -> None:
        raise client_error(code, status)

    try:
        with pytest.raises(Fault):
            await clients.call(create_fleet)
    finally:
        clients.close()
    assert slowed == (["create_fleet"] if is_slowed else []) and (bucket.per_second < before) is is_slowed


@pytest.mark.parametrize(
    ("code", "message"),
    (
        ("RequestExpired", "Request has expired."),
        ("InvalidSignatureException", "Signature not yet current: 20261126T150000Z is still later than ..."),
        ("SignatureDoesNotMatch", "Signature expired: 20261126T145000Z is now earlier than 20261126T150000Z"),
    ),
)
def test_clock_errors_are_retried_and_explained(code: str, message: str) -> None:
    fault = fault_of(client_error(code, 400, message), "create_fleet")
    assert type(fault) is Throttled
    assert fault.message == f"create_fleet: {message}; check the worker's clock"


def test_wrong_secret_is_forbidden() -> None:
    fault = fault_of(client_error("SignatureDoesNotMatch", 403, "The signature we calculated does not match"), "x")
    assert type(fault) is Forbidden


def test_connection_errors_are_retryable_and_invalid_requests_are_not() -> None:
    unreachable = fault_of(EndpointConnectionError(endpoint_url="http://nowhere"), "create_fleet")
    assert type(unreachable) is TryLater
    assert type(fault_of(NoCredentialsError(), "x")) is Forbidden
    assert type(fault_of(ParamValidationError(report="bad"), "x")) is BadInput


def test_capacity_error_codes() -> None:
    """A missing reservation counts as insufficient capacity too."""
    codes = """
        InsufficientInstanceCapacity MaxSpotInstanceCountExceeded VcpuLimitExceeded UnfulfillableCapacity Unsupported
        InsufficientFreeAddressesInSubnet MaxFleetCountExceeded ReservationCapacityExceeded
        ReservationCapacityIncompatible InvalidCapacityReservationState InvalidCapacityReservationId.NotFound
        AuthFailure.ServiceLinkedRoleCreationNotPermitted SpotMaxPriceTooLow
        InvalidCapacityReservationState.Unavailable
    """
    assert set(codes.split()) <= INSUFFICIENT
    others = "RequestLimitExceeded InternalError UnauthorizedOperation InvalidAMIID.NotFound"
    assert INSUFFICIENT.isdisjoint(others.split())


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "SpotSLRCreationFailed"),
        ("UnauthorizedOperation", "", "Unauthorized"),
        ("AuthFailure", "not allowed", "Unauthorized"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        ("InvalidParameterValue", "Invalid IAM Instance Profile name", "InstanceProfileNameInvalid"),
        ("InvalidLaunchTemplateName.NotFoundException", "", "LaunchTemplateNotFound"),
        ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
        ("InvalidUserData.Malformed", "is not Base64", "LaunchFailed"),
        ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
        ("InvalidAMIID.NotFound", "", "AMINotFound"),
        ("RequestLimitExceeded", "", "RequestLimitExceeded"),
        ("InternalError", "", "InternalError"),
        ("InvalidParameterCombination", "The type is not eligible for Free Tier", "FreeTierIneligible"),
        ("MaxFleetCountExceeded", "", "FleetQuotaExceeded"),
        ("PendingVerification", "", "AccountPendingVerification"),
        ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
        ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
        ("InsufficientFreeAddressesInSubnet", "", "InsufficientFreeAddressesInSubnet"),
        ("InvalidParameterValue", "something else", "LaunchFailed"),
        (
            "InvalidParameter",
            "Security group a and subnet b belong to different networks.",
            "SecurityGroupSubnetVPCMismatch",
        ),
        ("NeverHeardOf", "", "LaunchFailed"),
    ],
)
def test_launch_failure_reasons(code: str, message: str, reason: str) -> None:
    assert create_error_reason(code, message) == reason


def test_missing_instance_profile_is_recognized_by_message() -> None:
    assert names_missing_profile(BadInput("x: Invalid IAM Instance Profile name", code="InvalidParameterValue"))
    assert not names_missing_profile(BadInput("x: other", code="InvalidParameterValue"))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("User: x is not authorized because no identity-based policy allows it", "deploy/iam"),
        ("with an explicit deny in a permissions boundary", "permissions boundary"),
        ("with an explicit deny in a service control policy", "service control policy"),
    ],
)
def test_permission_errors_name_policy_to_change(message: str, hint: str) -> None:
    assert create_error_reason("UnauthorizedOperation", message) == "Unauthorized"
    assert hint in error_remedy("UnauthorizedOperation", message)


def test_fixable_errors_rank_first() -> None:
    codes = ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "InvalidAMIID.NotFound", "UnauthorizedOperation"]
    assert sorted(codes, key=lambda code: error_rank(code, "")) == list(reversed(codes))
