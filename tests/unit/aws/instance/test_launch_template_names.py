"""The same EC2NodeClass has the same launch templates on every machine: names are hashes of what they say."""

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
"""Class, template of on-demand nodes, template of spot nodes."""


@pytest.mark.parametrize(("seed", "order"), [("0", "written"), ("1", "turned"), ("4711", "turned")])
def test_names_are_the_same_in_every_process_and_for_every_order_of_keys(seed: str, order: str) -> None:
    """A change here renames every template: nodes do not drift by it, but each template is made once more."""
    command = [sys.executable, "-m", "tests.support.aws.template_names", order]
    environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == GOLDEN
