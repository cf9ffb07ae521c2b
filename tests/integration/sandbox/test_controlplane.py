"""Versions of the control plane's binaries."""

import subprocess

from tenure.sandbox.controlplane import find_or_build
from tenure.sandbox.controlplane.versions import ETCD, KUBERNETES, KWOK


def test_binaries_have_the_pinned_versions() -> None:
    found = find_or_build()
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        result = subprocess.run([found[name], "--version"], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == f"Kubernetes v{KUBERNETES}"
    for name, version in (("etcd", ETCD), ("kwok", KWOK)):
        result = subprocess.run([found[name], "--version"], capture_output=True, text=True, check=True)
        assert version in result.stdout
