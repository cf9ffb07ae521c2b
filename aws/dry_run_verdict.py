"""What EC2's answer to a trial says of the EC2NodeClass: nothing against it, something with a reason, or nothing yet.

Pure. Throttling and server errors are no verdict; neither is a want of capacity, which is not the class's.
"""

from datetime import timedelta
from typing import Final

from aws.errors import DRY_RUN, INSUFFICIENT, LAUNCH_TEMPLATE_NOT_FOUND, names_missing_profile
from aws.launch_errors import LAUNCH_FAILED, create_error_reason, how_to_mend
from model import labels
from model.base import Value
from model.faults import Fault, Forbidden, Throttled, TryLater
from model.kinds import EC2NodeClass


class Wrong(Value):
    reason: str
    message: str
    lasts: bool = True
    """Whether it may be remembered."""


class Undecided(Value):
    message: str
    again_in: timedelta | None = None
    """Where it will be known very soon."""


Verdict = Wrong | Undecided | None

SOON: Final = timedelta(seconds=5)
_CREDENTIALS: Final = frozenset({"NoCredentials", "InvalidClientTokenId", "SignatureDoesNotMatch"})
_NO_ROLE: Final = "has no associated IAM Roles"
_FIELDS: Final = (
    ("InvalidAMI", "spec.amiSelectorTerms"),
    ("InvalidSubnet", "spec.subnetSelectorTerms"),
    ("InvalidGroup", "spec.securityGroupSelectorTerms"),
    ("InvalidSecurityGroup", "spec.securityGroupSelectorTerms"),
    ("InvalidSnapshot", "spec.blockDeviceMappings"),
    ("InvalidBlockDeviceMapping", "spec.blockDeviceMappings"),
    ("InvalidVolume", "spec.blockDeviceMappings"),
    ("InvalidPlacementGroup", "spec.placementGroupSelector"),
    ("InvalidUserData", "spec.userData"),
)
_OF_THE_CALL: Final = frozenset({"Unauthorized", LAUNCH_FAILED})
"""Reasons that say no more than which call failed."""


def verdict_of(fault: Fault, node_class: EC2NodeClass, forbidden: str) -> Verdict:
    """`forbidden`: the reason where the call itself is not allowed."""
    if fault.code == DRY_RUN or fault.code in INSUFFICIENT:
        return None
    if isinstance(fault, Throttled | TryLater) or fault.code in _CREDENTIALS:
        return Undecided(message=_said(fault))
    if fault.code in LAUNCH_TEMPLATE_NOT_FOUND:
        return Undecided(message=_said(fault), again_in=SOON)
    if names_missing_profile(fault) or _NO_ROLE in fault.message:
        return _profile(fault, node_class)
    known, mend = create_error_reason(fault.code, fault.message), how_to_mend(fault.code, fault.message)
    said = f"{_said(fault)}; {mend}" if mend else _said(fault)
    if isinstance(fault, Forbidden) and known in _OF_THE_CALL:
        return Wrong(reason=forbidden, message=said)
    reason = labels.DRY_RUN_FAILED if known in _OF_THE_CALL else known
    return Wrong(reason=reason, message=f"{_field(fault)}: EC2 would not launch with it: {said}")


def _profile(fault: Fault, node_class: EC2NodeClass) -> Verdict:
    """IAM's own answer that it is there comes some seconds before EC2 knows of it."""
    given = node_class.spec.instance_profile
    if not given:
        return Undecided(message=f"EC2 does not know the new instance profile yet: {fault.message}", again_in=SOON)
    missing = names_missing_profile(fault)
    told = f"there is no instance profile {given!r}" if missing else f"instance profile {given!r} has no role"
    reason = labels.INSTANCE_PROFILE_NOT_FOUND if missing else labels.DRY_RUN_FAILED
    return Wrong(reason=reason, message=f"spec.instanceProfile: {told}: {fault.message}", lasts=False)


def _field(fault: Fault) -> str:
    return next((field for start, field in _FIELDS if fault.code.startswith(start)), "spec")


def _said(fault: Fault) -> str:
    return f"{fault.code}: {fault.message}" if fault.code else fault.message
