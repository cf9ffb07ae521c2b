"""A supervised child process with its own log, a health check with a deadline, and a graceful stop; never an orphan.

The parts of the sandbox (control plane, Temporal, simulators) are such processes. A child has its own process group,
so that Ctrl-C reaches the sandbox first and the sandbox stops its parts in order. If the sandbox is killed, the kernel
kills the children (see `launcher.py`).

Also the health checks of the parts.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import aiohttp

from tenure.sandbox.errors import SandboxError

LAUNCHER = Path(__file__).with_name("launcher.py")
TAIL_LINES = 12
POLL_SECONDS = 0.03

LAZY = "300"
"""GOGC: percent by which the heap of a Go program may grow before garbage collection. With 100, a control plane spends
a seventh of its time on it when 150 nodes start at once. With 1,000 nodes and 10,000 pods, the API server uses at most
3.5 GB."""

HealthCheck = Callable[[], Awaitable[str | None]]
"""Returns None if the part is healthy, else the problem."""


class PartFailed(SandboxError):
    """A part did not start, or exited. The message has its name, the cause and the end of its log."""

    def __init__(self, part: str, why: str, log: Path) -> None:
        super().__init__(part, why, log)  # pickle calls the class with these arguments
        self.part, self.why, self.log = part, why, log
        self._log_tail = _log_tail(log)

    def __str__(self) -> str:
        return f"{self.part}: {self.why}\nlog: {self.log}\n{self._log_tail}"


class Process:
    """One child. The thread that calls `start` must outlive the child, because the kernel kills the child with it.

    `deadline`: seconds from start to healthy. `end`: signal for a graceful stop.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        health: HealthCheck,
        environment: Mapping[str, str] | None = None,
        deadline: float = 60.0,
        end: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name, self.log = name, log
        self.seconds_to_healthy = 0.0
        self._command = [str(argument) for argument in command]
        self._health, self._environment, self._deadline, self._end = health, environment, deadline, end
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """PID of the part; 0 before it is started."""
        return self._child.pid if self._child else 0

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    async def start(self) -> None:
        """Start and wait until healthy. Raises `PartFailed` after it killed the child."""
        began = time.monotonic()
        self._spawn()
        try:
            await self._until_healthy(began)
        except BaseException:
            self.kill()
            raise
        self.seconds_to_healthy = time.monotonic() - began

    async def stop(self, grace: float = 5.0) -> None:
        """Send the stop signal, then SIGKILL after `grace` seconds. Safe to call twice."""
        child = self._child
        if child is None:
            return
        self.signal(self._end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(child.wait, grace)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the part and its process group, and reap it."""
        self.signal(signal.SIGKILL)
        if self._child:
            self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group of the part, if it exists."""
        if not self._child or self._child.returncode is not None:
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def check(self) -> None:
        """Raises `PartFailed` if the part has exited."""
        if self._child and (code := self._child.poll()) is not None:
            raise PartFailed(self.name, f"ended with {_describe_exit(code)}", self.log)

    def _spawn(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                tied_to_us(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self._environment is None else dict(self._environment),
                start_new_session=True,
            )

    async def _until_healthy(self, began: float) -> None:
        problem: str | None = "not checked yet"
        while time.monotonic() - began < self._deadline:
            self.check()
            problem = await self._check_health()
            if problem is None:
                return
            await asyncio.sleep(POLL_SECONDS)
        raise PartFailed(self.name, f"not healthy after {self._deadline:g} s ({problem})", self.log)

    async def _check_health(self) -> str | None:
        try:
            async with asyncio.timeout(5):
                return await self._health()
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def with_lazy_garbage_collection() -> dict[str, str]:
    """The environment of this process with GOGC for less garbage collection. A GOGC of the user is kept."""
    return {"GOGC": LAZY, **os.environ}


def tied_to_us(command: Sequence[str]) -> list[str]:
    """The command line with which the kernel kills the child when the thread that started it ends."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command]


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _log_tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "(no log was written)"
    return "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:]) or "  | (the log is empty)"


_PER_REQUEST = aiohttp.ClientTimeout(total=3)


def http_ok(url: str, *, token: str | None = None) -> HealthCheck:
    """Healthy if a GET returns 2xx. TLS is not verified, because the certificates are self-signed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    tls = _unverified_context() if url.startswith("https") else False

    async def check() -> str | None:
        async with (
            aiohttp.ClientSession(timeout=_PER_REQUEST) as session,
            session.get(url, headers=headers, ssl=tls) as response,
        ):
            return None if response.ok else f"{url} answers {response.status}"

    return check


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
