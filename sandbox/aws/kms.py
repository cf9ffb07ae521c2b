"""Whether a volume can be encrypted with a key: moto's KMS keys, read in process."""

from __future__ import annotations

from moto.kms.models import kms_backends


def is_usable(account: str, region: str, key: str) -> bool:
    """`key` is an id, an ARN or an alias; AWS's own `alias/aws/...` keys always are."""
    if "alias/aws/" in key:
        return True
    backend = kms_backends[account][region]
    found = backend.keys.get(backend.any_id_to_key_id(key))
    return found is not None and found.enabled
