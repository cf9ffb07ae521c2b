"""Files of this folder that ship with the worker: IAM policies, RBAC, CRDs, and the stack of its queue."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RBAC = HERE / "rbac"
OPTIONAL_RBAC = {file.stem.replace("-", "_"): file for file in sorted((RBAC / "optional").glob("*.yaml"))}
"""Permissions that only one setting or feature gate of the worker needs, by its name. `RBAC` does not grant them."""
EVENTS_STACK = HERE / "cloudformation" / "events.yaml"
IAM_FILES = tuple(sorted((HERE / "iam").glob("*.json")))


def policy_statements(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """The statements of all policies in `iam/`, with `${...}` placeholders replaced by `values`."""
    return [statement for file in IAM_FILES for statement in render(file.read_text(), values)["Statement"]]


def render(policy: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A policy document; placeholders without a value are kept."""
    for name, value in values.items():
        policy = policy.replace(f"${{{name}}}", value)
    rendered: dict[str, Any] = json.loads(policy)
    return rendered


def rbac_documents(settings: Collection[str] = ()) -> list[dict[str, Any]]:
    """`settings`: names of `OPTIONAL_RBAC` that are on, such as `nominate_pods`."""
    files = [*sorted(RBAC.glob("*.yaml")), *(OPTIONAL_RBAC[name] for name in settings)]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def crd_files() -> tuple[Path, ...]:
    """One CustomResourceDefinition each."""
    return tuple(sorted((HERE / "crds").glob("*.yaml")))


def chart_version() -> str:
    """Version of the package, of the worker's chart and of its image, which a test keeps equal."""
    chart = yaml.safe_load((HERE / "charts" / "tenure" / "Chart.yaml").read_text())
    return str(chart["appVersion"])


def service_account() -> tuple[str, str]:
    """Namespace and name of the worker's ServiceAccount. Raises ValueError if there is not exactly one."""
    (found,) = [one["metadata"] for one in rbac_documents() if one["kind"] == "ServiceAccount"]
    return found["namespace"], found["name"]
