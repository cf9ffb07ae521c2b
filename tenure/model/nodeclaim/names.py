"""Name, owner reference and requirements of the NodeClaims that Tenure creates."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from tenure.apis.labels import NODEPOOL_API_VERSION, REQUESTED_DRA_DRIVERS
from tenure.model.facts import Expression

_LONGEST_POOL: Final = 52
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def make_nodeclaim_name(pool: str, plan_id: str, index: int) -> str:
    """The NodePool's name, and ten characters derived from the plan's ID and the NodeClaim's index in the plan."""
    digest = hashlib.sha256(f"{plan_id}/{index}".encode()).digest()
    return f"{pool[:_LONGEST_POOL]}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:10])}"


def nodepool_owner_reference(name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": NODEPOOL_API_VERSION,
        "kind": "NodePool",
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
    }


def parse_dra_drivers(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The DRA drivers whose devices the NodeClaim needs; empty without the annotation."""
    names = annotations.get(REQUESTED_DRA_DRIVERS, "").split(",")
    return tuple(one.strip() for one in names if one.strip())


def to_requirement_json(one: Expression) -> dict[str, Any]:
    return {
        "key": one.key,
        "operator": one.operator,
        **({"values": list(one.values)} if one.values else {}),
        **({"minValues": one.min_values} if one.min_values is not None else {}),
    }
