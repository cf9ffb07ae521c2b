"""promtool, which checks and tests Prometheus' rules: on the PATH, in the cache, or built from its Go module.

`python -m tools.metrics.promtool` builds it, in about three minutes on two cores; tests that need it are skipped
without it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tenure.sandbox.controlplane.golang import go, go_environment
from tenure.sandbox.controlplane.progress import progress
from tenure.sandbox.controlplane.versions import cache_folder, install_file
from tenure.sandbox.errors import BuildFailed

VERSION: Final = "0.316.0"
"""Of the Go module; Prometheus 3.16."""
_PACKAGE: Final = f"github.com/prometheus/prometheus/cmd/promtool@v{VERSION}"


def found() -> Path | None:
    """Where it is, if it is anywhere."""
    named = shutil.which("promtool")
    return Path(named) if named else _cached() if os.access(_cached(), os.X_OK) else None


def build() -> None:
    """Into the cache. Raises BuildFailed. Service discovery, most of what it would compile, is left out."""
    _cached().parent.mkdir(parents=True, exist_ok=True)
    with progress() as report, tempfile.TemporaryDirectory(dir=_cached().parent, prefix=".promtool-") as folder:
        compiler = go(report)
        report.step("building promtool")
        command = [str(compiler), "install", "-trimpath", "-tags", "remove_all_sd", "-ldflags", "-s -w", _PACKAGE]
        environment = go_environment() | {"GOBIN": folder}
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        if answer.returncode:
            raise BuildFailed(f"promtool could not be built:\n{answer.stderr[-2000:]}")
        install_file(Path(folder) / "promtool", _cached())


def _cached() -> Path:
    return cache_folder() / "bin" / f"promtool-{VERSION}"


def main() -> int:
    try:
        if found() is None:
            build()
    except BuildFailed as failed:
        print(f"{failed}\nPrometheus' rules are not tested.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
