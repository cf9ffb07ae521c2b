"""Access keys that are bound to policies. A key without a policy is never denied. Denials are recorded for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tenure.sandbox.aws.iam.authorizer import IamAuthorizer
from tenure.sandbox.aws.iam.policy import BOUNDARY, IDENTITY, ORGANIZATION, Statement, read_policy
from tenure.sandbox.aws.settings import WORKER_KEY, SimSettings

__all__ = ["WORKER_KEY", "AccessKeys"]
MAX_DENIALS = 200


class AccessKeys:
    def __init__(self, settings: SimSettings) -> None:
        self._settings = settings
        self._first: dict[str, tuple[Statement, ...]] = {}
        self._policies: dict[str, tuple[Statement, ...]] = {}
        self._guards: dict[str, dict[str, tuple[Statement, ...]]] = {}
        self._denials: deque[dict[str, str]] = deque(maxlen=MAX_DENIALS)

    def bind_policy(self, access_key: str, policy: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Restrict a key to one policy or the union of several. Raises ValueError for an invalid document."""
        self._policies[access_key] = _read(policy)

    def set_guard(self, access_key: str, layer: str, policy: Mapping[str, Any] | None) -> None:
        """Add a permissions boundary or a service control policy to a bound key; None removes it."""
        if layer not in (BOUNDARY, ORGANIZATION):
            raise ValueError(f"a guard is a {BOUNDARY} or a {ORGANIZATION}")
        self._guards.setdefault(access_key, {}).pop(layer, None)
        if policy is not None:
            self._guards[access_key][layer] = _read(policy)

    def bind_for_good(self, access_key: str, policies: Iterable[Mapping[str, Any]]) -> None:
        """Like `bind_policy`, but kept after a reset."""
        self.bind_policy(access_key, policies)
        self._first[access_key] = self._policies[access_key]

    def release(self, access_key: str) -> None:
        """Remove all restrictions of the key. Raises KeyError if it was not bound."""
        del self._policies[access_key]

    def restore(self) -> None:
        """Restore only permanent bindings, and clear denials."""
        self._policies = dict(self._first)
        self._guards.clear()
        self._denials.clear()

    def list_bindings(self) -> dict[str, list[str]]:
        return {key: [statement.sid for statement in policy] for key, policy in self._policies.items()}

    def list_denials(self) -> list[dict[str, str]]:
        return list(self._denials)

    def policy_of(self, access_key: str) -> tuple[Statement, ...] | None:
        """The statements of a bound key; None for an unrestricted key."""
        return self._policies.get(access_key)

    def authorizer_for(self, access_key: str, region: str) -> IamAuthorizer | None:
        policy = self._policies.get(access_key)
        if policy is None:
            return None
        layers = {IDENTITY: policy, **self._guards.get(access_key, {})}
        return IamAuthorizer(access_key, layers, self._settings.account, region, self._denials)


def _read(policy: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> tuple[Statement, ...]:
    documents = [policy] if isinstance(policy, Mapping) else list(policy)
    return tuple(one for document in documents for one in read_policy(document))
