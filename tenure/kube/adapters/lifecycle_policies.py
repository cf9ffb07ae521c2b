"""Reads LifecyclePolicies and writes their validation results."""

from datetime import datetime
from typing import Final

from tenure.apis.labels import VALIDATION_SUCCEEDED
from tenure.kube.client.client import KubeClient
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.patches import StatusObjects
from tenure.kube.client.resources import LIFECYCLE_POLICIES
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.model.operator_requests import PolicyFact, PolicyValidation
from tenure.model.provider_results import ConditionPatch

_KIND: Final = LIFECYCLE_POLICIES.kind


class KubeLifecyclePolicies:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._policies, self._events = StatusObjects(client, LIFECYCLE_POLICIES, events), events

    async def list_facts(self) -> list[PolicyFact]:
        """All LifecyclePolicies, parsed as in the watch."""
        return [policy_fact(one) for one in await self._policies.list()]

    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        """Write the condition and the selected NodePools, and publish an event if there is a reason.

        Only changes are written. False if the policy is gone.
        """
        status = "False" if validation.rejected else "True"
        condition = ConditionPatch(
            type=VALIDATION_SUCCEEDED, status=status, reason=validation.reason, message=validation.message
        )
        status_fields = {"nodePools": list(validation.node_pools)}
        item = await self._policies.patch_status(name, uid=uid, status=status_fields, conditions=[condition], now=now)
        if item is not None and validation.reason:
            await self._events.publish(
                kind=_KIND,
                name=name,
                uid=uid,
                reason=validation.reason,
                message=validation.message,
                warning=validation.rejected,
            )
        return item is not None
