"""Parses LifecyclePolicies into facts. Problems are recorded in the fact, to be reported on the object."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from tenure.apis.lifecyclepolicy import LifecyclePolicy, PoolSelector
from tenure.apis.lifecyclepolicy_events import InterruptionRules
from tenure.model.base import first_validation_error
from tenure.model.operator_requests import InvalidRules, PolicyFact

Json = Mapping[str, Any]


def policy_fact(policy: Json) -> PolicyFact:
    """The policy with its valid sections, and the first problem of an invalid one."""
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
