"""A worker as a child process with the permissions of `deploy/`: its ClusterRole and IAM policies.

It inherits none of the user's AWS or Kubernetes settings.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.resources import IAM_FILES, RBAC, service_account
from tenure.cli.admin.servers import worker_command
from tenure.sandbox.aws.settings import WORKER_KEY
from tenure.sandbox.processes import Process, http_ok

__all__ = ["RBAC", "WORKER_KEY", "aws_arguments", "service_account"]


INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "SSL_CERT_FILE")
GRACE = 60.0
"""Seconds for shutdown, fewer than in the chart. Running activities may use a third of them."""


class WorkerProcess(Process):
    """Healthy when it polls task queues and its caches are synced."""

    READY_WITHIN = 300.0
    """Seconds. Thousands of nodes take minutes on a busy machine; a worker that exits is noticed at once."""

    def __init__(self, log: Path, *, environment: Mapping[str, str], health_port: int, metrics_port: int) -> None:
        ports = {"HEALTH_PROBE_PORT": str(health_port), "METRICS_PORT": str(metrics_port)}
        self.metrics_port = metrics_port
        super().__init__(
            "worker",
            worker_command([]),
            log=log,
            health=http_ok(f"http://127.0.0.1:{health_port}/readyz"),
            environment=clean_environment() | dict(environment) | ports,
            deadline=self.READY_WITHIN,
        )

    async def stop_gracefully(self) -> int | None:
        """The exit code, or None if the worker had to be killed."""
        self.signal(signal.SIGTERM)
        child = self._child
        if child is None:
            return None
        try:
            return await asyncio.to_thread(child.wait, GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


def clean_environment() -> dict[str, str]:
    """A few inherited variables, without credentials."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return inherited | {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def aws_arguments() -> tuple[str, ...]:
    """Bind the worker's key to the policies in `deploy/iam`."""
    return tuple(f"--policy={file}" for file in IAM_FILES)
