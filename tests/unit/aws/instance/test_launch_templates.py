"""Launch template names are hashes of their content and equal on every machine; existing templates are cached."""

import os
import subprocess
import sys
from typing import cast

import pytest

from tenure.apis.feature_gates import FeatureGate
from tenure.aws.client.client import AwsClients
from tenure.aws.instance.fleet import needs_efa_interfaces
from tenure.aws.instance.launch_templates import LaunchTemplate, LaunchTemplates
from tests.support.aws.builders import SETTINGS, build_nodeclaim
from tests.support.paths import ROOT
from tests.unit.aws.fakes import FakeClients

GOLDEN = """\
plain karpenter.k8s.aws/3990230045867822064 karpenter.k8s.aws/14039873014285530220
al2 karpenter.k8s.aws/4987364298224712979 karpenter.k8s.aws/3405277830246279451
bottlerocket karpenter.k8s.aws/7017969403131639643 karpenter.k8s.aws/3086982972173581978
full karpenter.k8s.aws/2372641955630741962 karpenter.k8s.aws/6648633538750871807
"""
"""Each line: EC2NodeClass, template name of on-demand nodes, template name of spot nodes."""


@pytest.mark.parametrize(("seed", "order"), [("0", "written"), ("1", "turned")])
def test_names_do_not_depend_on_process_or_key_order(seed: str, order: str) -> None:
    """A change renames all templates: nodes do not drift, but each template is created once more."""
    command = [sys.executable, "-m", "tests.support.aws.template_names", order]
    environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == GOLDEN


async def test_use_renews_cache_entry_and_unused_entry_expires() -> None:
    clients, now = FakeClients({"describe_launch_templates": [{"LaunchTemplateName": "one"}]}), 0.0
    templates = LaunchTemplates(cast(AwsClients, clients), SETTINGS, clock=lambda: now)
    one = LaunchTemplate(name="one", data={}, tags={})
    for now in (0.0, 40.0, 80.0, 120.0):  # noqa: B007 - the clock reads it
        await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 1
    now = 181.0
    await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 2
    templates.forget(["one"])
    await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 3


@pytest.mark.parametrize(
    ("drivers", "efa", "gate", "expected"),
    [
        ("", "0", True, False),
        ("", "1", False, True),
        ("gpu.nvidia.com,dra.net", "0", True, True),
        ("gpu.nvidia.com,dra.net", "0", False, False),
        ("gpu.nvidia.com", "0", True, False),
    ],
)
def test_pods_need_efa_interfaces_as_resource_or_as_devices(drivers: str, efa: str, gate: bool, expected: bool) -> None:
    annotations = {"karpenter.sh/requested-dra-drivers": drivers} if drivers else {}
    claim = build_nodeclaim(requests={"vpc.amazonaws.com/efa": efa}, annotations=annotations)
    settings = SETTINGS.model_copy(update={"feature_gates": {FeatureGate.DRA_EFA: gate}})
    assert needs_efa_interfaces(claim, settings) == expected
