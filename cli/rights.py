"""The rights that ship with the worker: its ServiceAccount, and the key that is bound to its IAM policy."""

from deploy.shipped import IAM_FILES, RBAC, service_account
from sandbox.aws.iam.keyring import WORKER_KEY

__all__ = ["RBAC", "WORKER_KEY", "aws_arguments", "service_account"]


def aws_arguments() -> tuple[str, ...]:
    """For the stand-in: bind the worker's key to the policies in `deploy/iam`."""
    return tuple(f"--policy={file}" for file in IAM_FILES)
