"""promtool, which checks and tests Prometheus rules: from the PATH, from the cache, or built from its Go module.

`python -m tools.metrics.promtool` builds it in about three minutes on two cores. Without it, tests that need it are
skipped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tenure.cache_folder import cache_folder
from tenure.progress import report_progress
from tenure.sandbox.controlplane.golang import ensure_golang, golang_environment
from tenure.sandbox.controlplane.versions import install_file
from tenure.sandbox.errors import BuildFailed

VERSION: Final = "0.316.0"
"""Version of the Go module, for Prometheus 3.16."""
_PACKAGE: Final = f"github.com/prometheus/prometheus/cmd/promtool@v{VERSION}"


def find_promtool() -> Path | None:
    """From the PATH, else from the cache."""
    named = shutil.which("promtool")
    return Path(named) if named else _cached_path() if os.access(_cached_path(), os.X_OK) else None


def build() -> None:
    """Build into the cache. Raises `BuildFailed`. Service discovery, most of the code, is excluded."""
    _cached_path().parent.mkdir(parents=True, exist_ok=True)
    with (
        report_progress() as report,
        tempfile.TemporaryDirectory(dir=_cached_path().parent, prefix=".promtool-") as folder,
    ):
        compiler = ensure_golang(report)
        report.step("building promtool")
        command = [str(compiler), "install", "-trimpath", "-tags", "remove_all_sd", "-ldflags", "-s -w", _PACKAGE]
        environment = golang_environment() | {"GOBIN": folder}
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        if result.returncode:
            raise BuildFailed(f"promtool could not be built:\n{result.stderr[-2000:]}")
        install_file(Path(folder) / "promtool", _cached_path())


def _cached_path() -> Path:
    return cache_folder() / "bin" / f"promtool-{VERSION}"


def main() -> int:
    try:
        if find_promtool() is None:
            build()
    except BuildFailed as failed:
        print(f"{failed}\nPrometheus rules are not tested.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
