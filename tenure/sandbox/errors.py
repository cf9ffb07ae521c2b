"""Errors of a sandbox. Each is a `SandboxError` with a message for users."""


class SandboxError(RuntimeError):
    """A sandbox or a part of it is not available."""


class NotRunning(SandboxError):
    """The sandbox or the requested part is not running."""


class NoPort(SandboxError):
    """A requested port is in use, or no port is free."""


class DirectoryInUse(SandboxError):
    """Another process runs a sandbox in this directory."""


class BuildFailed(SandboxError):
    """The control plane is not available; the message has the cause and the fix."""


class ApiError(SandboxError):
    """The API server rejected a call of the sandbox. `status`: HTTP status."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"{method} {path}: {status}: {body[:500]}")
