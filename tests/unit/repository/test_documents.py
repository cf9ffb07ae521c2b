"""Commands, targets, modules, objects and outputs that the documentation shows exist."""

import importlib.util
import pydoc
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from tenure.apis.feature_gates import FeatureGate
from tenure.cli.main import app
from tests.support.paths import ROOT
from tools.crds.kinds import KINDS
from tools.crds.schema import root_schema

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def code_of(text: str) -> str:
    """The dedented code blocks of a page, indented or fenced."""
    blocks = re.findall(r"^( *)```\w+\n(.*?)^ *```$|((?:^ {4}.*\n)+)", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(textwrap.dedent(fenced or indented) for _, fenced, indented in blocks)


def documented_commands(page: Path) -> Iterator[str]:
    """Commands on lines of code that start with `tenure`, and in inline code."""
    text = page.read_text()
    for line in re.findall(r"^(?:\S*bin/)?tenure (.+)$", code_of(text), flags=re.MULTILINE):
        yield line.partition(" #")[0]
    for found in re.findall(r"`(?:\S*bin/)?tenure ([^`]+)`", text):
        yield " ".join(re.split(r"\\?\|", found)[0].split())


def find_unknown(command: str) -> str:
    """The first unknown part of the command, or an empty text."""
    command_or_group: Any = get_command(app)
    for token in re.sub(r'"[^"]*"', "TEXT", command).replace("[", " ").replace("]", " ").split():
        name = token.partition("=")[0]
        if name.isupper():
            continue
        if hasattr(command_or_group, "get_command") and not name.startswith("-"):
            command_or_group = command_or_group.get_command(None, name)
            if command_or_group is None:
                return name
        elif re.fullmatch(r"--[a-z][a-z-]*", name) and not command_or_group.context_settings.get(
            "ignore_unknown_options"
        ):
            options = {
                one for parameter in command_or_group.params for one in (*parameter.opts, *parameter.secondary_opts)
            }
            if name not in options | {"--help"}:
                return name
    return ""


def test_every_command_in_the_documentation_exists() -> None:
    found = {
        (str(page.relative_to(ROOT)), command): find_unknown(command)
        for page in PAGES
        for command in documented_commands(page)
    }
    assert found
    assert {location: unknown_part for location, unknown_part in found.items() if unknown_part} == {}


def documented_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Page and object of each code block that starts with `apiVersion`."""
    for page in PAGES:
        for block in re.findall(r"```yaml\n(apiVersion: .*?)```", page.read_text(), flags=re.DOTALL):
            for found in yaml.safe_load_all(block):
                yield page.name, found


def find_unknown_fields(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    properties = schema.get("properties", {})
    if isinstance(value, dict) and properties:
        for name, below in value.items():
            if name not in properties:
                yield f"{path}.{name}"
            else:
                yield from find_unknown_fields(properties[name], below, f"{path}.{name}")
    for below in value if isinstance(value, list) else ():
        yield from find_unknown_fields(schema.get("items", {}), below, f"{path}[]")


def test_every_object_in_the_documentation_is_valid() -> None:
    kinds = {kind.name: kind.model for kind in KINDS}
    found = [(page, one) for page, one in documented_objects() if one["kind"] in kinds]
    assert len(found) >= 8
    for page, one in found:
        kinds[one["kind"]].model_validate(one)
        assert (page, [*find_unknown_fields(root_schema(kinds[one["kind"]]), one)]) == (page, [])


def test_every_make_target_and_module_in_the_documentation_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES)
    pattern = r"make ([a-z0-9-]+)"
    found = set(re.findall(f"`{pattern}", text)) | set(re.findall(f"^{pattern}", code_of(text), flags=re.M))
    assert found and found <= targets
    modules = set(re.findall(r"python -m ([\w.]+)", text))
    assert modules and {one for one in modules if importlib.util.find_spec(one) is None} == set()


def test_every_python_name_in_the_documentation_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    found = set(re.findall(r"`((?:\w+\.){2,}[A-Z]\w*)`", text))
    assert len(found) >= 3 and {one for one in found if pydoc.locate(one) is None} == set()


def test_the_runbook_lists_every_alert() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "tenure.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    rows = re.findall(r"^\| `(\w+)`", (DOCS / "operating" / "runbooks" / "alerts.md").read_text(), flags=re.M)
    assert len(alerts) >= 8 and set(rows) == alerts


def test_every_runbook_has_commands_and_says_how_to_tell_that_it_worked() -> None:
    """In alerts.md, each section about an alert has both."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "tenure.yaml").read_text())
    urls = {rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"]}
    runbooks = DOCS / "operating" / "runbooks"
    linked = {runbooks / name for name in re.findall(r"]\(([\w-]+\.md)", (runbooks / "alerts.md").read_text())}
    texts = {str(path): path.read_text() for path in {ROOT / url for url in urls} | linked - {runbooks / "on-call.md"}}
    (alerts,) = (text for path, text in texts.items() if path.endswith("alerts.md"))
    texts |= {section.partition("\n")[0]: section for section in re.split(r"^## ", alerts, flags=re.M)[1:]}
    assert len(texts) >= 15
    incomplete = [name for name, text in texts.items() if not code_of(text).strip() or "It worked when" not in text]
    assert incomplete == []


def test_install_page_creates_what_an_instance_needs_to_join() -> None:
    """The stack with the role and its access entry, and the tags of the examples."""
    code = code_of((DOCS / "getting-started" / "install.md").read_text())
    assert "--template-file deploy/cloudformation/nodes.yaml" in code
    example = yaml.safe_load((ROOT / "examples" / "ec2nodeclass.yaml").read_text())["spec"]
    for term in (*example["subnetSelectorTerms"], *example["securityGroupSelectorTerms"]):
        assert all(f"Key={key}," in code for key in term["tags"])


def test_first_section_of_the_readme_compares_with_karpenter_with_proofs() -> None:
    """Its sections also state the maturity, and link the promises and the FAQ."""
    first, *sections = re.split(r"^## ", (ROOT / "README.md").read_text(), flags=re.M)[1:]
    assert first.startswith("Why instead of Karpenter") and first.count("[proof](") >= 3
    assert "concepts/promises.md" in first
    titles = {one.partition("\n")[0]: one for one in sections}
    assert {"Example", "Quick start"} <= titles.keys() and "before 1.0" in titles["Status"]
    assert any("getting-started/faq.md" in one for one in sections)


def test_promises_and_number_of_scenarios_are_those_of_the_table() -> None:
    promises = yaml.safe_load((ROOT / "tests" / "scenarios" / "rows.yaml").read_text())
    page = (DOCS / "concepts" / "promises.md").read_text()
    assert re.findall(r"^## \d\. (.+)$", page, flags=re.M) == [one["promise"] for one in promises]
    rows = sum(len(one["rows"]) for one in promises)
    assert f"[{rows} scenarios](tests/scenarios/rows.yaml)" in (ROOT / "README.md").read_text()


def test_prose_wraps_at_about_100_characters() -> None:
    """Tables, code, headings and lines with a long address are longer."""
    pages = [*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "deploy").rglob("*.md"), *(ROOT / "tenure").rglob("*.md")]
    wide = [
        f"{page.relative_to(ROOT)}: {line[:60]}"
        for page in pages
        for line in re.sub(r"<!--.*?-->|^( *)```.*?^\1```$", "", page.read_text(), flags=re.M | re.S).splitlines()
        if len(line) > 105 and not re.match(r"\s*[|#!]|    ", line) and max(map(len, line.split())) < 70
    ]
    assert wide == []


def test_no_page_has_a_conflict_marker() -> None:
    found = [page.name for page in PAGES if re.search(r"^(?:<{7}|>{7}) ", page.read_text(), flags=re.MULTILINE)]
    assert found == []


def test_every_output_in_the_documentation_is_generated() -> None:
    """`python -m tools.generate --check` compares the text. The JSON of simulate.md is an input."""
    fences = [
        (page.name, before)
        for page in PAGES
        for before, language in re.findall(r"(.*)\n```(text|json|http)\n", page.read_text())
        if (page.name, language) != ("simulate.md", "json")
    ]
    assert len(fences) >= 4
    assert [page for page, before in fences if not before.startswith("<!-- example: ")] == []


def test_comparison_with_karpenter_names_each_gate_and_has_a_state_in_each_row() -> None:
    """Only shared devices and parts of devices may be missing."""
    page = (DOCS / "concepts" / "karpenter-1.15.md").read_text().partition("\n## ")[2]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\|.*", page, flags=re.M)]
    rows = [row for row in rows if not (row[-1] == "State" or row[-1].startswith("---"))]
    assert {row[-1] for row in rows} == {"same", "better", "different", "not yet"} and len(rows) > 90
    missing = [" ".join(row) for row in rows if row[-1] == "not yet"]
    assert all("consumable" in row or "partitionable" in row for row in missing), missing
    assert [gate.value for gate in FeatureGate if f"`{gate.value}`" not in page] == []
