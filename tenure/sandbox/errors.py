"""What can go wrong with a sandbox; every such error is a `SandboxError` whose message is meant for a person."""


class SandboxError(RuntimeError):
    """A sandbox, or a part of it, cannot be had."""


class NotRunning(SandboxError):
    """The sandbox, or the part that was asked for, is not there."""


class NoPort(SandboxError):
    """A port that was asked for is in use, or none was free."""


class DirectoryInUse(SandboxError):
    """Another process runs a sandbox in this directory."""


class BuildFailed(SandboxError):
    """The control plane cannot be had; the message says why and what to do."""


class ApiError(SandboxError):
    """The API server refused a call of the sandbox itself. `status` is the HTTP status."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"{method} {path}: {status}: {body[:500]}")
