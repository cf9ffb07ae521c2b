"""Checks of the worker in addition to those of the API server. The worker reports their problems in conditions."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.families import family_of
from tenure.aws.nodeclass.spec_validation import find_spec_problem, why_tags
from tenure.aws.settings import AwsSettings
from tenure.cli.validate.crd import Object, custom_resource_of
from tenure.cli.validate.findings import Finding, from_message
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.kube.facts.objects import check_durations, nodepool_fact, overlay_fact
from tenure.model.base import first_validation_error
from tenure.model.nodeoverlays import find_overlay_problem
from tenure.policy.lifecycle_policy import problem_in
from tenure.policy.nodepool import validate_nodepool

Json = Mapping[str, Any]
_PART: Final = re.compile(r"[^.\[\]]+")
_ANY_CLUSTER: Final = AwsSettings(cluster_name="any", region="any")
"""Their values do not change the number of tags."""
_METADATA: Final = {"namespace": "default", "creationTimestamp": "2000-01-01T00:00:00Z", "uid": "file"}


def validate_object(found: Json) -> tuple[Object, list[Finding]] | None:
    """The object with its defaults, and its problems for the API server on create, else for the worker.

    None for a kind that Tenure does not define."""
    resource = custom_resource_of(found)
    if resource is None:
        return None
    stored, findings = resource.validate(found)
    return stored, findings or list(check_as_worker(stored))


def check_as_worker(found: Json) -> Iterator[Finding]:
    """The problems of an object that the API server accepts."""
    problems = _PROBLEMS.get(found["kind"])
    filled = {**found, "metadata": {**_METADATA, **found["metadata"]}}
    try:
        messages = list(filter(None, problems(filled))) if problems else []
    except ValidationError as error:
        field, problem, value = first_validation_error(error)
        yield Finding(field=field, value=value, problem=problem, remedy="expected a value that the worker can read")
        return
    except ValueError as error:
        messages = [str(error)]
    for message in messages:
        field, separator, text = message.partition(": ")
        yield from_message(field, value_at(found, field), text) if separator else from_message("", None, message)


def value_at(found: Any, field: str) -> Any:
    """The value of a field such as `spec.budgets[0]`; None if it is missing, or if a key has dots."""
    for part in _PART.findall(field):
        if isinstance(found, list):
            found = found[int(part)] if part.isdigit() and int(part) < len(found) else None
        else:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _nodepool_problems(found: Json) -> tuple[str, ...]:
    nodepool_fact(found)
    return validate_nodepool(NodePool.from_object(found))


def _nodeclass_problems(found: Json) -> Iterator[str]:
    node_class = EC2NodeClass.from_object(found)
    family = family_of(node_class)
    found_problems = (find_spec_problem(node_class, family, lambda _: True), why_tags(node_class, _ANY_CLUSTER))
    yield from (problem[1] for problem in found_problems if problem)


def _nodeclaim_problems(found: Json) -> tuple[str, ...]:
    check_durations(found)
    return ()


_PROBLEMS: Final[Mapping[str, Callable[[Json], Iterable[str]]]] = {
    "NodePool": _nodepool_problems,
    "EC2NodeClass": _nodeclass_problems,
    "NodeOverlay": lambda found: (find_overlay_problem(overlay_fact(found)),),
    "LifecyclePolicy": lambda found: (problem_in(policy_fact(found)),),
    "NodeClaim": _nodeclaim_problems,
}
