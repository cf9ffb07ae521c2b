"""Stamps of the static hash that another controller, or another version, left on NodeClaims (reference 6.3).

`activities/stamps.py` writes what is decided here; `controller/shadow.py` judges drift as if it were written.
"""

from collections.abc import Mapping

from model.hashing import HASH_VERSION


def decide_stamp(
    annotations: Mapping[str, str], value: str, *, key: str, version: str, drifted: bool, deleting: bool
) -> dict[str, str]:
    """The annotations to be written; none for a NodeClaim that keeps its stamp.

    One that has drifted keeps its hash under the new version, and so stays drifted. One that was never stamped is left
    so: somebody made it by hand."""
    if deleting or annotations.get(version, "") in ("", HASH_VERSION):
        return {}
    return {version: HASH_VERSION} | ({} if drifted else {key: value})
