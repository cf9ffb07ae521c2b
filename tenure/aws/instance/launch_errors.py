"""Reasons and remedies of failed launches, by EC2's error codes and messages.

Reasons and order are Karpenter's: of several errors, the first one in this table is reported. The message is only used
if AWS uses a code for several causes.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tenure.aws.client.errors import LAUNCH_TEMPLATE_NOT_FOUND, SERVICE_LINKED_ROLE, SUBNET_FULL

LAUNCH_FAILED: Final = "LaunchFailed"
_DENIED: Final = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})


class _Case(NamedTuple):
    reason: str
    codes: Iterable[str] = ()
    """Matches any of these codes; if empty, any code."""
    text: str = ""
    """Text that the message must contain, ignoring case."""
    remedy: str = ""


_CASES: Final = (
    _Case(
        "SpotSLRCreationFailed",
        SERVICE_LINKED_ROLE,
        remedy="create the service-linked role: aws iam create-service-linked-role --region REGION "
        "--aws-service-name spot.amazonaws.com",
    ),
    _Case(
        "Unauthorized",
        _DENIED,
        "explicit deny in a permissions boundary",
        "the permissions boundary of the controller's role denies it: allow the action there",
    ),
    _Case(
        "Unauthorized",
        _DENIED,
        "explicit deny in a service control policy",
        "a service control policy of the organization denies it: ask its administrator",
    ),
    _Case(
        "Unauthorized",
        _DENIED,
        remedy="attach the policies in deploy/iam to the controller's role, with iam:PassRole for the nodes' role",
    ),
    _Case(
        "AMIAuthorizationFailure",
        {"AuthFailure"},
        "image",
        "share the image with this account, or select another one in spec.amiSelectorTerms",
    ),
    _Case("Unauthorized", {"AuthFailure"}, remedy="allow the action for the controller's role"),
    _Case(
        "SecurityGroupSubnetVPCMismatch",
        text="belong to different networks",
        remedy="select subnets and security groups of one VPC in spec.subnetSelectorTerms and "
        "spec.securityGroupSelectorTerms",
    ),
    _Case(
        "InstanceProfileNameInvalid",
        {"InvalidParameterValue"},
        "invalid iam instance profile",
        "EC2 does not know the instance profile yet: the launch is retried; see status.instanceProfile",
    ),
    _Case(
        "InstanceProfileNameInvalid", {"InvalidParameterValue"}, "iaminstanceprofile.name", "see spec.instanceProfile"
    ),
    _Case("LaunchTemplateNotFound", LAUNCH_TEMPLATE_NOT_FOUND, remedy="the template was deleted and is recreated"),
    _Case(
        "UserDataSizeLimitExceeded",
        {"InvalidUserData.Malformed"},
        "user data is limited to",
        "shorten spec.userData: the rendered user data may have 16384 bytes",
    ),
    _Case("InvalidAMIID", {"InvalidAMIID.Malformed", "InvalidAMIID.Unavailable"}, remedy="see spec.amiSelectorTerms"),
    _Case("AMINotFound", {"InvalidAMIID.NotFound"}, remedy="the image no longer exists; see spec.amiSelectorTerms"),
    _Case("RequestLimitExceeded", {"RequestLimitExceeded"}),
    _Case("InternalError", {"InternalError"}),
    _Case("FreeTierIneligible", {"FreeTierRestrictionError"}, remedy="the account may only launch free tier types"),
    _Case("FreeTierIneligible", text="free tier", remedy="the account may only launch free tier types"),
    _Case("FleetQuotaExceeded", {"MaxFleetCountExceeded"}, remedy="request a higher quota of EC2 fleets"),
    _Case("AccountPendingVerification", {"PendingVerification"}, remedy="wait until AWS has verified the account"),
    _Case("SpotQuotaExceeded", {"MaxSpotInstanceCountExceeded"}, remedy="request a higher quota of spot instances"),
    _Case("VCPULimitExceeded", {"VcpuLimitExceeded"}, remedy="request a higher vCPU quota of running instances"),
    _Case(
        "InsufficientFreeAddressesInSubnet", SUBNET_FULL, remedy="select subnets with free addresses, or larger subnets"
    ),
)
_LAST: Final = _Case(LAUNCH_FAILED)
SPREAD_GROUP_FULL: Final = "limit of instances in this spread placement group"


def create_error_reason(code: str, message: str) -> str:
    return _match_case(code, message)[1].reason


def error_remedy(code: str, message: str) -> str:
    """The remedy as a clause; empty if none is needed or known."""
    return _match_case(code, message)[1].remedy


def error_rank(code: str, message: str) -> int:
    """Lower ranks are reported first."""
    return _match_case(code, message)[0]


def _match_case(code: str, message: str) -> tuple[int, _Case]:
    text = message.lower()
    for index, case in enumerate(_CASES):
        if (not case.codes or code in case.codes) and case.text in text:
            return index, case
    return len(_CASES), _LAST
