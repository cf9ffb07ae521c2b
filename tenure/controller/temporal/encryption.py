"""The codec that encrypts payloads."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from tenure.controller.temporal.payload_codec import ENCODING, KEY_ID, VARIABLE
from tenure.model.errors import BadInput

_NONCE: Final = 12


class EncryptionCodec(PayloadCodec):
    """AES-GCM. `keys`: by name; the first one encrypts, and each decrypts its own payloads."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._newest = next(iter(keys))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt(one) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises `BadInput` for a payload that was altered or whose key is missing."""
        return [self.decrypt(one) for one in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce, name = os.urandom(_NONCE), self._newest.encode()
        data = nonce + self._keys[self._newest].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: name}, data=data)

    def decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        name = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        key = self._keys.get(name)
        if key is None:
            raise BadInput(f"a payload is encrypted by the key {name!r}, which {VARIABLE} lacks: add it")
        try:
            plain = key.decrypt(payload.data[:_NONCE], payload.data[_NONCE:], name.encode())
        except InvalidTag as error:
            raise BadInput(f"{VARIABLE}: {name!r} is not the key that encrypted this") from error
        return Payload.FromString(plain)
