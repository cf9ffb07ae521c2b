"""The fields of `spec.kubelet` are those of the newest supported KubeletConfiguration."""

import re
from typing import Final

from tenure.aws.kubelet.validation import FIELDS
from tenure.sandbox.controlplane.versions import RELEASES
from tests.support.sandbox.go_modules import download_module

TYPE_META: Final = {"apiVersion", "kind"}
REFUSED: Final = {"registerWithTaints"}
"""Validation names the field of NodePools instead."""


def test_fields_are_those_of_newest_kubelet() -> None:
    module = download_module("k8s.io/kubelet", RELEASES["1.37"].kubernetes.replace("1.", "0.", 1))
    source = (module / "config" / "v1beta1" / "types.go").read_text()
    struct = re.search(r"^type KubeletConfiguration struct \{$(.*?)^\}$", source, re.MULTILINE | re.DOTALL)
    assert struct
    expected = set(re.findall(r"^\t\w+ +\S+ +`json:\"(\w+)", struct[1], re.MULTILINE))
    assert len(expected) > 100
    assert expected - REFUSED == FIELDS - TYPE_META
