"""The configuration of kube-scheduler."""

from pathlib import Path

import pytest
import yaml

from tenure.sandbox.certificates import ensure_certificates
from tenure.sandbox.controlplane import Binaries
from tenure.sandbox.controlplane.commands import Layout


@pytest.mark.parametrize(("quick", "seconds"), [(True, 1), (False, 10)])
def test_quick_sandbox_tries_unschedulable_pods_again_after_a_second(
    tmp_path: Path, *, quick: bool, seconds: int
) -> None:
    layout = Layout(
        folder=tmp_path,
        certificates=ensure_certificates(tmp_path / "pki"),
        ports={},
        binaries=Binaries({}),
        kubeconfig=tmp_path / "kubeconfig.yaml",
        durable=False,
        quick=quick,
    )
    layout.write_files("token", "https://127.0.0.1:6443")
    assert yaml.safe_load(layout.scheduler_config.read_text())["podMaxBackoffSeconds"] == seconds
