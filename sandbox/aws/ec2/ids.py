"""Ids as EC2 makes them, and the check that a given id could be one."""

from __future__ import annotations

import re
import secrets

from sandbox.aws.wire.errors import AwsError

HEX_ID = re.compile(r"^[a-z]+-(?:[0-9a-f]{8}|[0-9a-f]{17})$")
# What EC2 calls the malformed and the missing id of each prefix.
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
