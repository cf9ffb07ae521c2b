"""A worker as a child process of the tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.cli.sandbox.worker_process import WORKER_KEY, WorkerProcess
from tenure.sandbox.ports import Ports
from tests.support.product.eventually import TIMEOUT_SECONDS

SETTINGS = {"BATCH_IDLE_DURATION": "500ms", "LOG_LEVEL": "info"}
"""Settings of every worker in tests. A shorter batch saves time in each test."""


@dataclass(frozen=True)
class WorkerAddresses:
    """`probes` and `metrics` are URLs."""

    log: Path
    pid: int
    probes: str
    metrics: str


class WorkerUnderTest(WorkerProcess):
    """A worker with the shipped permissions: its ServiceAccount, and an access key with the shipped IAM policy."""

    READY_WITHIN = TIMEOUT_SECONDS

    def __init__(self, log: Path, *, environment: Mapping[str, str], kubeconfig: Path, ports: Ports) -> None:
        rights = {
            "KUBECONFIG": str(kubeconfig),
            "AWS_ACCESS_KEY_ID": WORKER_KEY,
            "AWS_SECRET_ACCESS_KEY": WORKER_KEY,
        }
        health_port, metrics_port = ports.reserve(), ports.reserve()
        super().__init__(log, environment={**environment, **rights}, health_port=health_port, metrics_port=metrics_port)
        self.probes = f"http://127.0.0.1:{health_port}"
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"

    @property
    def addresses(self) -> WorkerAddresses:
        return WorkerAddresses(self.log, self.pid, self.probes, self.metrics)

    def last_errors(self) -> str:
        """The last lines of the log that are errors; the last lines of any level if there are none."""
        lines = self.log.read_text().splitlines()
        errors = [line for line in lines if '"ERROR"' in line or not line.startswith("{")]
        return "\n".join((errors or lines)[-5:])

    def wait(self) -> int:
        """Wait for the process to end. Returns its exit code."""
        assert self._child is not None
        return self._child.wait()

    @property
    def session(self) -> int:
        """Process session of the worker and its children; the number is valid after the worker ends."""
        return self.pid
