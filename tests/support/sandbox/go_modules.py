"""Sources of Go modules, for tests that compare Tenure with Kubernetes' own files."""

import json
import subprocess
from pathlib import Path

from tenure.progress import LineProgress
from tenure.sandbox.controlplane.golang import ensure_golang, golang_environment


def download_module(module: str, version: str) -> Path:
    """The folder of a module in Go's cache, such as k8s.io/kubelet and 0.37.2."""
    command = [str(ensure_golang(LineProgress())), "mod", "download", "-json", f"{module}@v{version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=golang_environment())
    return Path(json.loads(result.stdout)["Dir"])
