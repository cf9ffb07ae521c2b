"""The files that ship with the code: lock files, packages and examples."""

import re
from typing import Any

import pytest
import yaml

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.model.nodeclaim.state import Deadlines
from tenure.policy.lifecycle_policy import resolve_policies
from tests.support.paths import ROOT

PACKAGES = ("activities", "tenure", "workflows")
EXAMPLES = ROOT / "examples"
CLUSTER = "demo"


def example_documents() -> list[dict[str, Any]]:
    files = sorted(EXAMPLES.glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def examples_of(kind: str) -> list[dict[str, Any]]:
    return [document for document in example_documents() if document["kind"] == kind]


def test_every_folder_of_shipped_code_is_a_package() -> None:
    """A folder without `__init__.py` would be left out when the packages are installed."""
    folders = {path.parent for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("lock", ["dev.txt", "worker.txt"])
def test_every_locked_package_has_hashes_and_no_host(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) > 30
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text
    assert "--index-url" not in text


def test_example_nodepools_use_existing_nodeclass_and_known_labels() -> None:
    classes = {found["metadata"]["name"] for found in examples_of("EC2NodeClass")}
    for found in examples_of("NodePool"):
        NodePool.from_object(found)
        spec = found["spec"]["template"]["spec"]
        reference = spec["nodeClassRef"]
        assert (reference["group"], reference["kind"]) == ("karpenter.k8s.aws", "EC2NodeClass")
        assert reference["name"] in classes
        unknown = {requirement["key"] for requirement in spec["requirements"]} - labels.WELL_KNOWN
        assert unknown == set()


def test_example_policies_are_valid_together() -> None:
    born = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    policies = [policy_fact({**one, "metadata": one["metadata"] | born}) for one in examples_of("LifecyclePolicy")]
    pools = {found["metadata"]["name"]: found["metadata"].get("labels", {}) for found in examples_of("NodePool")}
    validations = resolve_policies(policies, pools, Deadlines()).validations
    assert validations and {name: one.message for name, one in validations.items() if one.reason} == {}
    assert all(one.node_pools for one in validations.values())


def test_example_nodeclasses_select_sandbox_resources() -> None:
    for found in examples_of("EC2NodeClass"):
        EC2NodeClass.from_object(found)
        spec = found["spec"]
        assert spec["role"] == f"KarpenterNodeRole-{CLUSTER}"
        for terms in ("subnetSelectorTerms", "securityGroupSelectorTerms"):
            assert spec[terms] == [{"tags": {"karpenter.sh/discovery": CLUSTER}}]


def test_example_deployments_have_no_replicas_and_select_their_pods() -> None:
    names = [found["metadata"]["name"] for found in examples_of("Deployment")]
    assert "inflate" in names
    assert len(names) == len(set(names))
    for found in examples_of("Deployment"):
        spec = found["spec"]
        assert spec["replicas"] == 0
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert all(container["resources"]["requests"] for container in spec["template"]["spec"]["containers"])
