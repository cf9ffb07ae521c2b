"""What ships with the worker, read from the files beside this one: its IAM policy and its rights in the cluster."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def policy_statements(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """The statements of all policies in `iam/`, with their `${...}` placeholders filled from `values`."""
    found: list[dict[str, Any]] = []
    for file in sorted((HERE / "iam").glob("*.json")):
        text = file.read_text()
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value)
        found += json.loads(text)["Statement"]
    return found


def rbac_documents() -> list[dict[str, Any]]:
    files = sorted((HERE / "rbac").glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def service_account() -> tuple[str, str]:
    """Namespace and name of the worker's. Raises ValueError when there is not exactly one."""
    (found,) = [one["metadata"] for one in rbac_documents() if one["kind"] == "ServiceAccount"]
    return found["namespace"], found["name"]
