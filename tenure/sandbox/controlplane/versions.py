"""Versions, names and cache of the sandbox's binaries. Files are installed atomically."""

import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.34.4"
ETCD = "3.6.4"
KWOK = "0.7.0"
GO = (1, 24)
"""Minimum Go version, from the go.mod files of Kubernetes 1.34 and kwok 0.7."""

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Binaries:
    """Paths by name, for each of `NAMES`."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]


def platform_target() -> tuple[str, str]:
    """Operating system and architecture, with Go's names."""
    machine = platform.machine().lower()
    return platform.system().lower(), _ARCHITECTURES.get(machine, machine)


def cache_folder() -> Path:
    """`TENURE_CACHE`, else `tenure` in the XDG cache folder."""
    if named := os.environ.get("TENURE_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tenure"


def binaries_folder() -> Path:
    """One folder per set of versions, so that versions are never mixed."""
    return cache_folder() / "bin" / "-".join(("kubernetes", KUBERNETES, "etcd", ETCD, "kwok", KWOK, *platform_target()))


def install(content: bytes, path: Path) -> None:
    """Write next to the target, then rename, so that readers never see a partial file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    _publish_file(Path(name), path)


def install_file(built: Path, path: Path) -> None:
    """Move a file within the same cache."""
    _publish_file(built, path)


def _publish_file(made: Path, path: Path) -> None:
    made.chmod(0o755)
    made.replace(path)
