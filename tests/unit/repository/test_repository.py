"""The repository itself: the layout stands, packages are complete, generated files are fresh, examples are valid."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.lifecycle_policies import policy_fact
from model import labels
from model.kinds import EC2NodeClass, NodePool
from model.lifecycle import Deadlines
from policy.selection import resolve
from tests.support.paths import ROOT

PACKAGES = ("activities", "aws", "cli", "controller", "kube", "model", "policy", "sandbox", "scheduling", "workflows")
FOLDERS = (*PACKAGES, "deploy", "examples", "docs", "tests", "benchmarks", "requirements")
FILES = ("worker.py", "settings.py", "pyproject.toml", "Makefile", "README.md", "LICENSE", ".ci/run", ".ci/bootstrap")
EXAMPLES = ROOT / "examples"
CLUSTER = "demo"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(pattern: str) -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, check=True, text=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def example_documents() -> list[dict[str, Any]]:
    files = sorted(EXAMPLES.glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def examples_of(kind: str) -> list[dict[str, Any]]:
    return [document for document in example_documents() if document["kind"] == kind]


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_the_layout_stands(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_is_installed_type_checked_and_held_by_the_contracts(name: str) -> None:
    tool = project()["tool"]
    assert f"{name}*" in tool["setuptools"]["packages"]["find"]["include"]
    assert name in tool["mypy"]["packages"]
    assert name in tool["importlinter"]["root_packages"]
    assert (ROOT / name / "__init__.py").exists()


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


def test_the_lock_holds_every_package_that_is_asked_for() -> None:
    asked = project()["project"]
    locked = {_plain(line.partition("==")[0]) for line in (ROOT / "requirements/dev.txt").read_text().splitlines()}
    names = [*asked["dependencies"], *asked["optional-dependencies"]["sandbox"], *asked["optional-dependencies"]["dev"]]
    assert {_plain(name) for name in names} <= locked


def _plain(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", found.group().lower()) if found else ""


def test_the_crds_are_what_the_models_say() -> None:
    subprocess.run([sys.executable, "-m", "deploy.generate", "--check"], cwd=ROOT, check=True)


@pytest.mark.parametrize("script", [".ci/run", ".ci/bootstrap"])
def test_scripts_can_be_run_and_are_sound(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    shell = path.read_text().splitlines()[0].removeprefix("#!").split()
    subprocess.run([*shell, "-n", str(path)], check=True)


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    named = set(re.findall(r"`make ([a-z]+)", (ROOT / "README.md").read_text()))
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test", "check", "bench", "scenarios"} <= named <= made


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_no_file_is_longer_than_a_reader_bears() -> None:
    """300 lines are the aim; tables and views may need more, but not without end."""
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in tracked("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 400 and not name.startswith("tests/")} == {}


def test_example_pools_name_a_class_that_is_there_and_labels_that_exist() -> None:
    classes = {found["metadata"]["name"] for found in examples_of("EC2NodeClass")}
    for found in examples_of("NodePool"):
        NodePool.from_object(found)
        spec = found["spec"]["template"]["spec"]
        reference = spec["nodeClassRef"]
        assert (reference["group"], reference["kind"]) == ("karpenter.k8s.aws", "EC2NodeClass")
        assert reference["name"] in classes
        unknown = {requirement["key"] for requirement in spec["requirements"]} - labels.WELL_KNOWN
        assert unknown == set()


def test_example_policies_make_sense_together() -> None:
    born = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    policies = [policy_fact({**one, "metadata": one["metadata"] | born}) for one in examples_of("LifecyclePolicy")]
    pools = {found["metadata"]["name"]: found["metadata"].get("labels", {}) for found in examples_of("NodePool")}
    verdicts = resolve(policies, pools, Deadlines()).verdicts
    assert verdicts and {name: one.message for name, one in verdicts.items() if one.reason} == {}
    assert all(one.node_pools for one in verdicts.values())


def test_example_classes_are_found_in_the_sandboxs_cluster() -> None:
    for found in examples_of("EC2NodeClass"):
        EC2NodeClass.from_object(found)
        spec = found["spec"]
        assert spec["role"] == f"KarpenterNodeRole-{CLUSTER}"
        for terms in ("subnetSelectorTerms", "securityGroupSelectorTerms"):
            assert spec[terms] == [{"tags": {"karpenter.sh/discovery": CLUSTER}}]


def test_example_deployments_ask_for_no_pod_yet_and_select_their_own() -> None:
    names = [found["metadata"]["name"] for found in examples_of("Deployment")]
    assert "inflate" in names
    assert len(names) == len(set(names))
    for found in examples_of("Deployment"):
        spec = found["spec"]
        assert spec["replicas"] == 0
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert all(container["resources"]["requests"] for container in spec["template"]["spec"]["containers"])
