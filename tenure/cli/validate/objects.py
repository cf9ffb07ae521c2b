"""One object, validated as by the API server on create and then as by the worker."""

from collections.abc import Mapping
from typing import Any

from tenure.cli.validate.crd import Object, custom_resource_of
from tenure.cli.validate.findings import Finding
from tenure.cli.validate.worker_checks import check_as_worker


def validate_object(found: Mapping[str, Any]) -> tuple[Object, list[Finding]] | None:
    """The object with its defaults, and its problems; None for a kind that Tenure does not define."""
    resource = custom_resource_of(found)
    if resource is None:
        return None
    stored, findings = resource.validate(found)
    return stored, findings or list(check_as_worker(stored))
