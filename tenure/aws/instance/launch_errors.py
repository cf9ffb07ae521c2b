"""Reasons of failed launches, and remedies, by EC2's codes and texts.

The reasons are Karpenter's and so is their order: of several errors the first in this table is reported.
Codes decide; a text only where AWS uses one code for many things.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tenure.aws.client.errors import LAUNCH_TEMPLATE_NOT_FOUND, SERVICE_LINKED_ROLE, SUBNET_FULL

LAUNCH_FAILED: Final = "LaunchFailed"
_DENIED: Final = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})


class _Case(NamedTuple):
    reason: str
    codes: Iterable[str] = ()
    """Any of these; none for any code."""
    text: str = ""
    """Text that the message must contain, ignoring case."""
    remedy: str = ""


_CASES: Final = (
    _Case(
        "SpotSLRCreationFailed",
        SERVICE_LINKED_ROLE,
        remedy="create the service-linked role: aws iam create-service-linked-role --aws-service-name "
        "spot.amazonaws.com",
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
        remedy="let the controller's role do it: the policies in deploy/iam are what it needs, with iam:PassRole "
        "for the role of the nodes",
    ),
    _Case(
        "AMIAuthorizationFailure",
        {"AuthFailure"},
        "image",
        "share the image with this account, or select another one in spec.amiSelectorTerms",
    ),
    _Case("Unauthorized", {"AuthFailure"}, remedy="let the controller's role do it"),
    _Case(
        "SecurityGroupSubnetVPCMismatch",
        text="belong to different networks",
        remedy="let spec.subnetSelectorTerms and spec.securityGroupSelectorTerms select within one VPC",
    ),
    _Case(
        "InstanceProfileNameInvalid",
        {"InvalidParameterValue"},
        "invalid iam instance profile",
        "EC2 does not know the instance profile, or not yet: it is tried again; see status.instanceProfile",
    ),
    _Case(
        "InstanceProfileNameInvalid", {"InvalidParameterValue"}, "iaminstanceprofile.name", "see spec.instanceProfile"
    ),
    _Case("LaunchTemplateNotFound", LAUNCH_TEMPLATE_NOT_FOUND, remedy="somebody deleted it; it is made again"),
    _Case(
        "UserDataSizeLimitExceeded",
        {"InvalidUserData.Malformed"},
        "user data is limited to",
        "shorten spec.userData: the rendered user data may have 16384 bytes",
    ),
    _Case("InvalidAMIID", {"InvalidAMIID.Malformed", "InvalidAMIID.Unavailable"}, remedy="see spec.amiSelectorTerms"),
    _Case("AMINotFound", {"InvalidAMIID.NotFound"}, remedy="the image is gone; see spec.amiSelectorTerms"),
    _Case("RequestLimitExceeded", {"RequestLimitExceeded"}),
    _Case("InternalError", {"InternalError"}),
    _Case(
        "FreeTierIneligible", {"FreeTierRestrictionError"}, remedy="the account may launch types of the free tier only"
    ),
    _Case("FreeTierIneligible", text="free tier", remedy="the account may launch types of the free tier only"),
    _Case("FleetQuotaExceeded", {"MaxFleetCountExceeded"}, remedy="ask AWS for a higher quota of EC2 fleets"),
    _Case("AccountPendingVerification", {"PendingVerification"}, remedy="AWS verifies the account; wait, or ask AWS"),
    _Case("SpotQuotaExceeded", {"MaxSpotInstanceCountExceeded"}, remedy="ask AWS for a higher quota of spot instances"),
    _Case("VCPULimitExceeded", {"VcpuLimitExceeded"}, remedy="ask AWS for a higher quota of running instances"),
    _Case(
        "InsufficientFreeAddressesInSubnet",
        SUBNET_FULL,
        remedy="select subnets with free addresses, or make them larger",
    ),
)
_LAST: Final = _Case(LAUNCH_FAILED)
SPREAD_GROUP_FULL: Final = "limit of instances in this spread placement group"


def create_error_reason(code: str, message: str) -> str:
    return _match_case(code, message)[1].reason


def error_remedy(code: str, message: str) -> str:
    """A clause with the remedy; empty if none is needed or known."""
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
