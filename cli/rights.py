"""The rights that ship with the worker: its ServiceAccount, and the key that is bound to its IAM policy."""

from pathlib import Path
from typing import Any

import yaml

from sandbox.aws.iam.keyring import WORKER_KEY

DEPLOY = Path(__file__).parents[1] / "deploy"
RBAC = DEPLOY / "rbac"
IAM = DEPLOY / "iam"

__all__ = ["IAM", "RBAC", "WORKER_KEY", "aws_arguments", "service_account"]


def service_account() -> tuple[str, str]:
    """Namespace and name of the one in `deploy/rbac`. Raises ValueError when there is not exactly one."""
    (found,) = [one["metadata"] for one in _documents() if one["kind"] == "ServiceAccount"]
    return found["namespace"], found["name"]


def aws_arguments() -> tuple[str, ...]:
    """For the stand-in: bind the worker's key to the policies in `deploy/iam`."""
    return tuple(f"--policy={file}" for file in sorted(IAM.glob("*.json")))


def _documents() -> list[dict[str, Any]]:
    files = sorted(RBAC.glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]
