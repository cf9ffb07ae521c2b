"""Helm, for the tests of the charts: built from its Go module like the control plane, and cached beside it."""

import os
from pathlib import Path

from sandbox.controlplane.build import Target, build_target
from sandbox.controlplane.find import only_one
from sandbox.controlplane.golang import go
from sandbox.controlplane.progress import progress
from sandbox.controlplane.versions import KUBERNETES, cache_folder, target

HELM = "3.19.5"
_MAJOR, _MINOR, _ = KUBERNETES.split(".")
_TARGET = Target(
    "helm",
    {"helm": "helm.sh/helm/v3/cmd/helm"},
    600,
    {
        "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
        # What charts are rendered for where no cluster is asked.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
    },
)


def helm() -> Path:
    """Path of a `helm`, built if need be: about two minutes on two cores. Raises `BuildFailed`."""
    cache = cache_folder() / "bin" / "-".join(("helm", HELM, *target()))
    found = cache / "helm"
    if not os.access(found, os.X_OK):
        cache.mkdir(parents=True, exist_ok=True)
        with progress() as report, only_one(cache.with_name(f"{cache.name}.lock"), report):
            if not os.access(found, os.X_OK):
                build_target(go(report), _TARGET, ["helm"], cache, report)
    return found
