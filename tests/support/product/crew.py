"""A worker as a child process of the tests, with what tests ask of it beside."""

from collections.abc import Mapping
from pathlib import Path

from cli.worker_process import WorkerProcess
from tests.support.product.eventually import PATIENCE


class TestedWorker(WorkerProcess):
    """`probes` and `metrics` are URLs."""

    __test__ = False
    READY_WITHIN = PATIENCE

    def __init__(self, log: Path, *, environment: Mapping[str, str], health_port: int, metrics_port: int) -> None:
        super().__init__(log, environment=environment, health_port=health_port, metrics_port=metrics_port)
        self.probes = f"http://127.0.0.1:{health_port}"
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self._child is not None
        return self._child.wait()

    @property
    def session(self) -> int:
        """The process session of the worker and of all that it starts; it keeps its number when the worker ends."""
        return self.pid
