"""A supervised child process: its own log, a health check with a deadline, a clean stop, and never an orphan.

The parts of the sandbox (control plane, Temporal, simulators) are such processes. A child has its own process group,
so that Ctrl-C reaches the sandbox first and the sandbox stops its parts in order. If the sandbox is killed, the kernel
kills the children (see `launcher.py`).

Health checks of the sandbox's parts: None if healthy, else the problem.
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
"""Percent by which a Go program's memory may grow before it collects garbage. With 100 a control plane spends a seventh
of its time on that in a storm of 150 nodes. With 1,000 nodes and 10,000 pods the API server has 3.5 GB at most."""

HealthCheck = Callable[[], Awaitable[str | None]]
"""Returns None if the part is healthy, else the problem."""


class PartFailed(SandboxError):
    """A part of the sandbox did not start or ended by itself; says which and why, and shows the end of its log."""

    def __init__(self, part: str, why: str, log: Path) -> None:
        self.part, self.why, self.log = part, why, log
        super().__init__(f"{part}: {why}\nlog: {log}\n{_log_tail(log)}")


class Process:
    """One child. The thread that calls `start` has to outlive the child: the kernel ties their lives together.

    `deadline` is seconds from spawn to healthy; `end` is the signal that asks it to stop.
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
        """Process id of the part; 0 while it is not started."""
        return self._child.pid if self._child else 0

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    async def start(self) -> None:
        """Spawn and wait until healthy. Raises `PartFailed`, and leaves nothing running in that case."""
        began = time.monotonic()
        self._spawn()
        try:
            await self._until_healthy(began)
        except BaseException:
            self.kill()
            raise
        self.seconds_to_healthy = time.monotonic() - began

    async def stop(self, grace: float = 5.0) -> None:
        """The signal that asks it to, then SIGKILL after `grace` seconds. Safe to call twice."""
        child = self._child
        if child is None:
            return
        self.signal(self._end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(child.wait, grace)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the part and all that it started, and reap it."""
        self.signal(signal.SIGKILL)
        if self._child:
            self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the part's process group; nothing happens when it is gone."""
        if not self._child or self._child.returncode is not None:
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def check(self) -> None:
        """Raise `PartFailed` if the part has ended by itself."""
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
        problem: str | None = "not asked yet"
        while time.monotonic() - began < self._deadline:
            self.check()
            problem = await self._check_health()
            if problem is None:
                return
            await asyncio.sleep(POLL_SECONDS)
        raise PartFailed(self.name, f"not healthy after {self._deadline:g} s ({problem})", self.log)

    async def _check_health(self) -> str | None:
        try:
            return await asyncio.wait_for(self._health(), timeout=5)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def with_lazy_garbage_collection() -> dict[str, str]:
    """This process's environment, in which a Go program spends memory for time. A GOGC of the user's own holds."""
    return {"GOGC": LAZY, **os.environ}


def tied_to_us(command: Sequence[str]) -> list[str]:
    """The command line under which the kernel kills the child when the thread that started it is gone."""
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
    """Healthy when a GET answers 2xx. TLS is not verified: the parts' own certificates are self-signed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    tls = _unverified_context() if url.startswith("https") else False

    async def check() -> str | None:
        async with (
            aiohttp.ClientSession(timeout=_PER_REQUEST) as session,
            session.get(url, headers=headers, ssl=tls) as response,
        ):
            return None if response.ok else f"{url} answers {response.status}"

    return check


def port_check(port: int) -> HealthCheck:
    """Healthy when the port accepts connections."""

    async def check() -> str | None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return None

    return check


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
