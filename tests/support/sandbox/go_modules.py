"""Sources of Go modules, for tests that compare Tenure with the files of Kubernetes and Karpenter."""

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from tenure.progress import LineProgress
from tenure.sandbox.controlplane.golang import ensure_golang, golang_environment


def download_module(module: str, version: str) -> Path:
    """The folder of a module in Go's cache, such as k8s.io/kubelet and 0.37.2."""
    return Path(_download(module, version)["Dir"])


def unpack_module(module: str, version: str, folder: Path) -> Path:
    """Unpack a module into `folder`, even one that needs a newer Go, which Go downloads and then refuses."""
    with zipfile.ZipFile(_download(module, version)["Zip"]) as archive:
        archive.extractall(folder)
    return folder / f"{module}@v{version}"


def _download(module: str, version: str) -> dict[str, Any]:
    command = [str(ensure_golang(LineProgress())), "mod", "download", "-json", f"{module}@v{version}"]
    result = subprocess.run(command, capture_output=True, text=True, env=golang_environment())
    found: dict[str, Any] = json.loads(result.stdout)
    return found
