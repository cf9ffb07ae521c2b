"""The manifests of the recipes are valid, complete in the documentation, and work in the commands shown there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tenure.cli.main import main
from tenure.cli.validate.worker_checks import validate_object
from tests.support.paths import ROOT

RECIPES = ROOT / "examples" / "recipes"
FILES = sorted(RECIPES.rglob("*.yaml"))
PAGES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
SHOWN_IN_PART = {"cost-review/current.yaml", "cost-review/workloads.yaml"}
"""The page links the folder."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(RECIPES)))
def test_recipe_is_valid(file: Path) -> None:
    documents = list(yaml.safe_load_all(file.read_text()))
    assert documents
    found = {(one.get("kind"), str(problem)) for one in documents for problem in (validate_object(one) or (0, ()))[1]}
    assert found == set()


def test_each_page_shows_its_recipe() -> None:
    """`tools.generate --check` compares the text."""
    shown = {name for page in PAGES for name in re.findall(r"<!-- file: examples/recipes/(\S+) -->", page.read_text())}
    assert shown | SHOWN_IN_PART == {str(file.relative_to(RECIPES)) for file in FILES}


def test_each_page_names_its_tests() -> None:
    assert len(PAGES) >= 8
    assert [page.name for page in PAGES if "\n## Tests\n" not in page.read_text()] == []


def test_pipeline_rejects_an_invalid_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the workflow file, without the container."""
    (job,) = yaml.safe_load((RECIPES / "gitops" / "validate.yaml").read_text())["jobs"].values()
    command, _, pattern = job["steps"][-1]["run"].rpartition(" ")
    assert shlex.split(command)[-1] == "validate"
    text = (RECIPES / "gitops" / "nodes.yaml").read_text()
    manifest = tmp_path / Path(pattern).with_stem("nodes")
    manifest.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    codes = []
    for content in (text, text.replace("approval:", "aproval:")):
        manifest.write_text(content)
        codes.append(main(["validate", *map(str, Path().glob(pattern))]))
    assert codes == [0, 1]
