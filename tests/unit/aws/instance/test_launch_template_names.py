"""Launch template names are hashes of their content and equal on every machine."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

GOLDEN = """\
plain karpenter.k8s.aws/4958509543397022967 karpenter.k8s.aws/195151796171936311
al2 karpenter.k8s.aws/2660536674436458821 karpenter.k8s.aws/6775462325130716659
bottlerocket karpenter.k8s.aws/13176999043250255512 karpenter.k8s.aws/13905547542372874667
full karpenter.k8s.aws/10381004786484945660 karpenter.k8s.aws/2302140577386876403
"""
"""Each line: EC2NodeClass, template name of on-demand nodes, template name of spot nodes."""


@pytest.mark.parametrize(("seed", "order"), [("0", "written"), ("1", "turned"), ("4711", "turned")])
def test_names_do_not_depend_on_process_or_key_order(seed: str, order: str) -> None:
    """A change renames all templates: nodes do not drift, but each template is created once more."""
    command = [sys.executable, "-m", "tests.support.aws.template_names", order]
    environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == GOLDEN
