"""Reads LifecyclePolicies and writes their validation results."""

from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from tenure.apis.labels import VALIDATION_SUCCEEDED
from tenure.apis.lifecyclepolicy import LifecyclePolicy, PoolSelector
from tenure.apis.lifecyclepolicy_events import InterruptionRules
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.patches import StatusObjects
from tenure.kube.client.resources import LIFECYCLE_POLICIES
from tenure.model.base import first_validation_error
from tenure.model.operator_requests import InvalidRules, PolicyFact, PolicyValidation
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


def policy_fact(policy: Json) -> PolicyFact:
    """Parse a policy. Problems are recorded in the fact, so that they can be reported on the object."""
    metadata, spec = policy["metadata"], policy.get("spec")
    metadata_fields = {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "generation": metadata.get("generation", 0),
        "created": metadata["creationTimestamp"],
    }
    try:
        typed = LifecyclePolicy.from_object({"spec": spec}).spec
    except ValidationError as error:
        return PolicyFact.model_validate(
            {**metadata_fields, **_readable_fields(spec), "problem": _describe_first_error(error)}
        )
    selector = typed.node_pool_selector
    found = {**metadata_fields, **_selector_fields(selector), "rules": typed.rules}
    if selector is not None and bool(selector.names) == bool(selector.match_labels):
        found["problem"] = (
            "spec.nodePoolSelector: expected either 'names' or 'matchLabels'; to select every NodePool, remove it"
        )
    return PolicyFact.model_validate(found)


def _selector_fields(selector: PoolSelector | None) -> dict[str, Any]:
    return {"names": selector.names, "match_labels": selector.match_labels} if selector else {}


def _readable_fields(spec: Any) -> dict[str, Any]:
    """The selection and the valid sections of an invalid spec. An invalid selector selects no NodePool."""
    sections = spec if isinstance(spec, dict) else {}
    try:
        selector = LifecyclePolicy.from_object(
            {"spec": _spec_with_section(sections, "nodePoolSelector")}
        ).spec.node_pool_selector
    except ValidationError:
        return {}
    rules: dict[str, Any] = {}
    problem_by_section: dict[str, str] = {}
    for section in ("disruption", "rollout", "hooks", "interruption"):
        try:
            found = LifecyclePolicy.from_object({"spec": _spec_with_section(sections, section)}).spec
        except ValidationError as error:
            problem_by_section[section] = _describe_first_error(error)
        else:
            rules |= found.rules.to_object()
    if "interruption" in problem_by_section:
        rules["interruption"] = _readable_event_rules(sections["interruption"])
    return {**_selector_fields(selector), "rules": rules, "unread": InvalidRules.model_validate(problem_by_section)}


def _readable_event_rules(events: Any) -> Json:
    """The valid entries of `interruption`."""
    found: dict[str, Any] = {}
    for kind, rules in events.items() if isinstance(events, dict) else ():
        with suppress(ValidationError):
            found |= InterruptionRules.model_validate({kind: rules}).to_object()
    return found


def _spec_with_section(spec: Json, section: str) -> Json:
    return {section: spec[section]} if spec.get(section) is not None else {}


def _describe_first_error(error: ValidationError) -> str:
    """The first error: path, value and expected form."""
    field, problem, value = first_validation_error(error)
    return f"{field}: {value!r} cannot be read: {problem}"
