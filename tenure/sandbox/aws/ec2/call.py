"""One EC2 request for a handler: parsed parameters, the environment of its region, and the caller's permissions.

Also common helpers: IDs in EC2's format, values at a dotted path for filters, and the check of user data (base64, at
most 16 KiB).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.wire.responses import AwsError
from tenure.sandbox.aws.wire.xml import iso

if TYPE_CHECKING:
    from tenure.sandbox.aws.ec2.fleet.capacity_pools import Pool
    from tenure.sandbox.aws.ec2.fleet.launch import PreparedLaunch
    from tenure.sandbox.aws.iam.authorizer import IamAuthorizer


@dataclass(frozen=True)
class Call:
    """`starved`: error of a fault rule for every pool of a fleet."""

    action: str
    params: dict[str, Any]
    environment: Environment
    authorizer: IamAuthorizer | None = None
    starved: AwsError | None = None

    def permit_fleet(self, fleet_tags: dict[str, str], pools: list[Pool]) -> None:
        """Check permission to create a fleet from these templates. Raises UnauthorizedOperation."""
        if self.authorizer is not None:
            self.authorizer.create_fleet(self.environment, fleet_tags, pools)

    def permit_launch(self, prepared: PreparedLaunch, template_id: str | None) -> None:
        """Check permission to launch this instance. Raises UnauthorizedOperation."""
        if self.authorizer is not None:
            self.authorizer.run_instances(self.environment, prepared, template_id)

    def permit_each(self, action: str, kind: str, tagged: dict[str, dict[str, str]]) -> None:
        """Check permission for an action on each of these resources with their tags. Raises UnauthorizedOperation."""
        if self.authorizer is not None:
            self.authorizer.authorize_each(self.environment, action, kind, tagged)

    def permit_create(self, action: str, kind: str, tags: dict[str, str]) -> None:
        """Check permission to create a resource with these tags. Raises UnauthorizedOperation."""
        if self.authorizer is not None:
            self.authorizer.authorize_create(self.environment, action, kind, tags)

    def permit_tagging(self, action: str, tagged: dict[str, dict[str, str]], tags: dict[str, str]) -> None:
        """Check permission to add or remove tags on tagged resources. Raises UnauthorizedOperation."""
        if self.authorizer is not None:
            self.authorizer.authorize_tagging(self.environment, action, tagged, tags)


HEX_ID = re.compile(r"^[a-z]+-(?:[0-9a-f]{8}|[0-9a-f]{17})$")
# EC2's error names for malformed and missing IDs, by prefix.
ERROR_NAMES = {
    "i": "InvalidInstanceID",
    "ami": "InvalidAMIID",
    "lt": "InvalidLaunchTemplateId",
    "cr": "InvalidCapacityReservationId",
    "vol": "InvalidVolume",
    "eni": "InvalidNetworkInterfaceID",
    "fleet": "InvalidFleetId",
    "subnet": "InvalidSubnetID",
    "sg": "InvalidGroup",
    "vpc": "InvalidVpcID",
    "snap": "InvalidSnapshot",
    "pg": "InvalidPlacementGroupId",
}


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


def new_spot_request_id() -> str:
    return f"sir-{secrets.token_hex(4)}"


def new_fleet_id() -> str:
    raw = secrets.token_hex(16)
    return f"fleet-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def new_mac() -> str:
    tail = secrets.token_hex(4)
    return "06:1a:" + ":".join(tail[i : i + 2] for i in range(0, 8, 2))


def require_well_formed(ids: list[str], prefix: str) -> None:
    """Raises Invalid…Malformed for the first id that is not `prefix-` and 8 or 17 hex digits."""
    for one in ids:
        if not one.startswith(f"{prefix}-") or not HEX_ID.match(one):
            raise AwsError(f"{ERROR_NAMES[prefix]}.Malformed", f'Invalid id: "{one}" (expecting "{prefix}-...")')


def not_found(ids: list[str], prefix: str, noun: str) -> AwsError:
    code = f"{ERROR_NAMES[prefix]}.NotFound"
    if len(ids) == 1:
        return AwsError(code, f"The {noun} ID '{ids[0]}' does not exist")
    return AwsError(code, f"The {noun} IDs '{', '.join(ids)}' do not exist")


def values_at(view: Any, path: str) -> list[str]:
    """All values at a dotted path, through lists, in the format of filters."""
    found = [view]
    for step in path.split("."):
        following = []
        for node in found:
            inner = node.get(step) if isinstance(node, dict) else None
            following.extend(inner if isinstance(inner, list) else [] if inner is None else [inner])
        found = following
    return [_format_value(value) for value in found]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return iso(value) if isinstance(value, dt.datetime) else str(value)


USER_DATA_BYTES = 16384


def check_user_data(text: str | None) -> None:
    """Raises InvalidUserData.Malformed."""
    try:
        raw = base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_BYTES:
        raise AwsError("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES} bytes")
