"""Tenure's CRDs accept and reject the examples of Karpenter's AWS provider as its own CRDs do."""

from pathlib import Path

import pytest

from tenure.sandbox.spec import CRDS
from tests.adapters.apis.record_karpenter import MODULE, VERSION, read_examples, verdicts_with_crds
from tests.support.sandbox.go_modules import unpack_module


@pytest.mark.timeout(600)
def test_examples_have_the_same_result_with_both_crds(tmp_path: Path) -> None:
    module = unpack_module(MODULE, VERSION, tmp_path)
    examples = read_examples(module / "examples")
    assert {"NodePool", "EC2NodeClass"} == {one["kind"] for one in examples.values()} and len(examples) > 30
    expected = verdicts_with_crds(module / "pkg" / "apis" / "crds", examples)
    assert verdicts_with_crds(CRDS, examples) == expected and any(expected.values())
