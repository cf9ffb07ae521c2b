"""Encryption of what Temporal stores: inputs, results, signals, memos, summaries and details, before they leave here.

Search attributes stay readable, since Temporal searches by them. What was stored before encryption is read as it is.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, PayloadCodec

from model.faults import BadInput

VARIABLE: Final = "TEMPORAL_PAYLOAD_KEYS_PATH"
ENCODING: Final = b"binary/encrypted"
"""As Temporal's own samples mark such payloads."""
KEY_ID: Final = "encryption-key-id"
_NONCE: Final = 12
_BYTES: Final = (16, 24, 32)
_WRITE: Final = "write lines of a name and a key, such as `2026-01 $(openssl rand -base64 32)`, the newest first"


class Encrypting(PayloadCodec):
    """AES-GCM. `keys` by name: the first encrypts, each decrypts what it once encrypted."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._newest = next(iter(keys))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypted(one) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises ValueError for what was encrypted by a key that is not there, or was altered."""
        return [self.decrypted(one) for one in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce, name = os.urandom(_NONCE), self._newest.encode()
        data = nonce + self._keys[self._newest].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: name}, data=data)

    def decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        name = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        key = self._keys.get(name)
        if key is None:
            raise ValueError(f"encrypted by the key {name!r}, which {VARIABLE} has not: add it")
        try:
            plain = key.decrypt(payload.data[:_NONCE], payload.data[_NONCE:], name.encode())
        except InvalidTag as error:
            raise ValueError(f"{VARIABLE}: {name!r} is another key than the one that encrypted this") from error
        return Payload.FromString(plain)


def converter_of(path: str) -> DataConverter:
    """How payloads are written, by the file with keys; plain without one. Raises `BadInput`."""
    if not path:
        return pydantic_data_converter
    return replace(pydantic_data_converter, payload_codec=Encrypting(read_keys(path)))


def read_keys(path: str) -> dict[str, bytes]:
    """Raises `BadInput`: no key is ever shown."""
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
            raise BadInput(f"{VARIABLE}={path}, line {number}: {name} is there twice; give each key a name of its own")
        keys[name] = _key(text.strip(), f"{VARIABLE}={path}, line {number}, {name}")
    if not keys:
        raise BadInput(f"{VARIABLE}={path}: no key; {_WRITE}")
    return keys


def _key(text: str, where: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadInput(f"{where}: the key is no base64; {_WRITE}") from error
    if len(key) not in _BYTES:
        raise BadInput(f"{where}: {len(key)} bytes; AES takes 16, 24 or 32; {_WRITE}")
    return key


def decrypt_all(message: Any, decrypted: Callable[[Payload], Payload]) -> None:
    """Every payload within a message of protobuf, such as an event of a history, in place."""
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
