"""Names of the NodeClaims that Tenure makes: out of a plan's id and a place in it, so that none is made twice."""

import hashlib
from typing import Final

_LONGEST_POOL: Final = 52
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def claim_name(pool: str, plan_id: str, index: int) -> str:
    """The pool's name, and ten characters out of the plan's id and the claim's place in it."""
    digest = hashlib.sha256(f"{plan_id}/{index}".encode()).digest()
    return f"{pool[:_LONGEST_POOL]}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:10])}"
