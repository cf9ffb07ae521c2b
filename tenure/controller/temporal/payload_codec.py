"""Encrypts inputs, results, signals, memos, summaries and details before this process sends them to Temporal.

Search attributes stay readable, since Temporal searches by them. Payloads from before encryption are read unchanged.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, PayloadCodec

from tenure.model.errors import BadInput

if TYPE_CHECKING:
    from tenure.controller.temporal.encryption import EncryptionCodec

VARIABLE: Final = "TEMPORAL_PAYLOAD_KEYS_PATH"
ENCODING: Final = b"binary/encrypted"
"""As in Temporal's samples."""
KEY_ID: Final = "encryption-key-id"
_BYTES: Final = (16, 24, 32)
_WRITE: Final = "write lines of a name and a key, such as `2026-01 $(openssl rand -base64 32)`, the newest first"


def converter_of(path: str) -> DataConverter:
    """The converter of payloads. `path`: the file with keys; empty for no encryption. Raises `BadInput`."""
    if not path:
        return pydantic_data_converter
    return replace(pydantic_data_converter, payload_codec=codec_of(path))


class KeylessCodec(PayloadCodec):
    """Names the setting if a payload is encrypted, for commands. A worker without keys needs no codec."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises `BadInput` for an encrypted payload."""
        return [self.decrypt(one) for one in payloads]

    def decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == ENCODING:
            raise BadInput(f"{VARIABLE}: not set, but payloads are encrypted; set it as for the worker")
        return payload


def codec_of(path: str) -> "EncryptionCodec | KeylessCodec":
    """`path`: the file with keys; may be empty. Raises `BadInput`."""
    if not path:
        return KeylessCodec()
    from tenure.controller.temporal.encryption import EncryptionCodec  # noqa: PLC0415 - its library takes 7 MB, and few clusters encrypt

    return EncryptionCodec(read_keys(path))


def read_keys(path: str) -> dict[str, bytes]:
    """Keys by name. Raises `BadInput`, which never shows a key."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{VARIABLE}={path}: {getattr(error, 'strerror', None) or 'no text'}; {_WRITE}") from error
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        if name in keys:
            raise BadInput(f"{VARIABLE}={path}, line {number}: {name}: duplicate name, expected unique names of keys")
        keys[name] = _parse_key(text.strip(), f"{VARIABLE}={path}, line {number}, {name}")
    if not keys:
        raise BadInput(f"{VARIABLE}={path}: no key; {_WRITE}")
    return keys


def _parse_key(text: str, where: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadInput(f"{where}: the key is not base64; {_WRITE}") from error
    if len(key) not in _BYTES:
        raise BadInput(f"{where}: {len(key)} bytes; AES takes 16, 24 or 32; {_WRITE}")
    return key


def decrypt_all(message: Any, decrypted: Callable[[Payload], Payload]) -> None:
    """Decrypt every payload within a protobuf message, such as an event of a history, in place."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            found = [one for one in value.values() if hasattr(one, "ListFields")]
        else:
            found = list(value) if field.is_repeated else [value]
        for one in found:
            if isinstance(one, Payload):
                one.CopyFrom(decrypted(one))
            else:
                decrypt_all(one, decrypted)
