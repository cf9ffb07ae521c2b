"""Versions of the control plane's binaries."""

import subprocess

from tenure.sandbox.controlplane import find_or_build
from tenure.sandbox.controlplane.versions import KWOK, find_release, selected_minor


def test_binaries_have_the_pinned_versions() -> None:
    found, release = find_or_build(), find_release(selected_minor())
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        result = subprocess.run([found[name], "--version"], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == f"Kubernetes v{release.kubernetes}"
    for name, version in (("etcd", release.etcd), ("kwok", KWOK)):
        result = subprocess.run([found[name], "--version"], capture_output=True, text=True, check=True)
        assert version in result.stdout
