"""LifecyclePolicies: the rules of each NodePool, the objects that a change affects, and validation results.

A separate task writes the results to the status, so that a slow API server delays nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.changes import CacheChanged, ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.tables import set_or_remove
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.resources import LIFECYCLE_POLICIES
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.model.errors import Fault
from tenure.model.invalid_objects import ObjectKey
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import NO_INVALID_RULES, InvalidRules, PolicyFact, PolicyValidation
from tenure.policy.lifecycle.deadlines import deadlines_of, not_ready_grace_of
from tenure.policy.lifecycle.ready import expiry_jitter_of
from tenure.policy.lifecycle_policy import (
    check_policy,
    policy_name_by_hook_point,
    policy_names_by_event,
    resolve_policies,
)
from tenure.policy.policy_features import PolicyFeatures

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 10.0
"""Seconds before a validation result that could not be written is written again."""


class PolicyPort(Protocol):
    """`kube.lifecycle_policies` implements it."""

    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        """Write the validation if it changed. False when the policy is gone."""
        ...


class LifecyclePolicies:
    def __init__(
        self,
        cache: ClusterCache,
        port: PolicyPort,
        *,
        default_deadlines: Deadlines,
        features: PolicyFeatures,
        now: Callable[[], datetime],
    ) -> None:
        """`default_deadlines`: used where no policy sets one."""
        self._cache, self._port, self._default_deadlines, self._now = cache, port, default_deadlines, now
        self._features = features
        self._facts: dict[str, PolicyFact] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        """By NodePool, including deleted ones that still have NodeClaims."""
        self._rules: Mapping[str, LifecycleRules] = {}
        self._unread: Mapping[str, InvalidRules] = {}
        self._event_policies: Mapping[str, Mapping[str, str]] = {}
        self._hook_policies: Mapping[str, Mapping[str, str]] = {}
        self._validations: Mapping[str, PolicyValidation] = {}
        self._written: dict[str, tuple[str, int, PolicyValidation]] = {}
        self._changed = False
        self._validations_changed = asyncio.Event()

    def on_deltas(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            with self._cache.invalid_objects.guard_change(
                delta.object, LIFECYCLE_POLICIES.kind, is_deleted=delta.is_deleted
            ):
                name = delta.object["metadata"]["name"]
                fact = None if delta.is_deleted else policy_fact(delta.object)
                if fact is not None:
                    check_policy(fact)
                if fact != self._facts.get(name):
                    set_or_remove(self._facts, name, fact)
                    self._changed = True
        if self._changed:
            self._cache.publish(CacheChanged())

    def update(self, changes: ChangeSet, known: bool = True) -> bool:
        """Recompute the rules after a change of a policy or NodePool, and requeue NodeClaims whose rules differ. False
        if nothing changed, or policies and NodePools are not all `known` yet."""
        self._changed = self._update_nodepool_labels(changes) or self._changed
        if not self._changed or not known:
            return False
        self._changed = False
        before, unread_before = self._rules, self._unread
        event_policies_before, hook_policies_before = self._event_policies, self._hook_policies
        resolved = resolve_policies(self._facts.values(), self._labels, self._default_deadlines, self._features)
        self._rules, self._validations, self._unread = resolved.rules, resolved.validations, resolved.unread
        self._event_policies = policy_names_by_event(resolved.policies)
        self._hook_policies = policy_name_by_hook_point(resolved.policies)
        self._validations_changed.set()
        for pool in self._labels:
            rules_changed = before.get(pool) != self._rules.get(pool)
            unread = unread_before.get(pool, NO_INVALID_RULES).interruption != self.unread_of(pool).interruption
            renamed = event_policies_before.get(pool) != self._event_policies.get(pool)
            renamed = renamed or hook_policies_before.get(pool) != self._hook_policies.get(pool)
            if rules_changed or unread or renamed:
                changes.nodeclaims |= {claim.name for claim in self._cache.nodeclaims_of_nodepool(pool)}
            if rules_changed:
                changes.pods = True
            if rules_changed or unread_before.get(pool) != self._unread.get(pool):
                changes.nodepools |= {pool} & self._cache.nodepools.keys()
                self._cache.planner_changes.disruption_changes += 1
        return True

    def _update_nodepool_labels(self, changes: ChangeSet) -> bool:
        """Whether NodePools were added or removed, or their labels changed, by which policies select."""
        changed = False
        for name in (*changes.nodepools, *changes.deleted_nodepools):
            view = self._cache.nodepools.get(name)
            if view is not None and self._labels.get(name) != view.labels:
                self._labels[name] = view.labels
                changed = True
            elif view is None and name in self._labels and not self._cache.nodeclaims_of_nodepool(name):
                del self._labels[name]
                changed = True
        return changed

    # --- queries ---

    def rules_of(self, pool: str) -> LifecycleRules | None:
        """None if no policy applies."""
        return self._rules.get(pool)

    def event_policies_of(self, pool: str) -> dict[str, str]:
        """By kind of AWS event, the names of the policies with a rule for it."""
        return dict(self._event_policies.get(pool, {}))

    def hook_policies_of(self, pool: str) -> dict[str, str]:
        """By hook point, the name of the policy whose hooks apply."""
        return dict(self._hook_policies.get(pool, {}))

    def unread_of(self, pool: str) -> InvalidRules:
        """Invalid rules for the pool's nodes, which block their disruption."""
        return self._unread.get(pool, NO_INVALID_RULES)

    def deadlines_of(self, pool: str) -> Deadlines:
        return deadlines_of(self.rules_of(pool), self._default_deadlines)

    def not_ready_grace_periods(self) -> dict[str, timedelta]:
        """Of NodePools with a policy that sets it."""
        default = self._default_deadlines.not_ready_grace
        return {
            pool: not_ready_grace_of(rules, default) for pool, rules in self._rules.items() if rules.not_ready_grace
        }

    def expiry_jitters(self) -> dict[str, float]:
        """Of NodePools with a policy that has rules for expiration, as a share of the lifetime."""
        return {pool: expiry_jitter_of(rules) for pool, rules in self._rules.items() if rules.expiry}

    def not_ready_grace_of(self, pool: str) -> timedelta:
        """How long pods wait for a NotReady node of this NodePool."""
        return not_ready_grace_of(self._rules.get(pool), self._default_deadlines.not_ready_grace)

    # --- reports ---

    async def run(self) -> None:
        while True:
            await self._validations_changed.wait()
            self._validations_changed.clear()
            if not await self.write_validations():
                await asyncio.sleep(RETRY_SECONDS)
                self._validations_changed.set()

    async def write_validations(self) -> bool:
        """Write each validation result once; False if some could not be written."""
        complete = True
        self._written = {name: written for name, written in self._written.items() if name in self._facts}
        for name, validation in dict(self._validations).items():
            known = self._facts.get(name)
            if known is None or self._written.get(name) == (known.uid, known.generation, validation):
                continue
            is_written = False
            with self._cache.invalid_objects.guard(ObjectKey(LIFECYCLE_POLICIES.kind, name, known.uid, "status")):
                is_written = await self._write_validation(known, validation)
            complete = complete and is_written
        return complete

    async def _write_validation(self, known: PolicyFact, validation: PolicyValidation) -> bool:
        name = known.name
        try:
            await self._port.write_validation(name, known.uid, validation, now=self._now())
        except Fault as fault:
            log.warning("status of a LifecyclePolicy not written", name=name, fault=str(fault))
            return False
        self._written[name] = (known.uid, known.generation, validation)
        if validation.rejected:
            log.warning("LifecyclePolicy rejected", name=name, reason=validation.reason, error=validation.message)
        return True
