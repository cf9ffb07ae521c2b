"""What EC2 takes as user data: base64 of at most 16 KiB."""

from __future__ import annotations

import base64
import binascii

from sandbox.aws.wire.errors import AwsError

USER_DATA_BYTES = 16384


def check_user_data(text: str | None) -> None:
    """Raises InvalidUserData.Malformed."""
    try:
        raw = base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_BYTES:
        raise AwsError("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES} bytes")
