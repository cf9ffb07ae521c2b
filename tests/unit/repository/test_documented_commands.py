"""Commands in the documentation have the arguments, inputs and values that the product reads."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from temporalio import workflow
from typer.exceptions import TyperException
from typer.main import get_command

from deploy.commands import READ_LOGS
from tenure.cli.exit_codes import UsageError
from tenure.cli.main import app
from tenure.cli.simulate.portable_types import read_types
from tests.support.aws.commands import aws_commands, find_mistake
from tests.support.paths import ROOT
from tests.unit.repository.test_documents import DOCS, PAGES, code_of
from workflows.runner import WORKFLOWS

DEFINITIONS = {one.name: one for one in map(workflow._Definition.must_from_class, WORKFLOWS)}
TYPES = {
    "cluster": "Cluster",
    "disruption": "Disruption",
    "garbage-collection": "GarbageCollector",
    "nodeclaim": "NodeClaim",
    "nodepool": "NodePool",
}
"""Workflow types by the second part of the workflow ID (workflows/ids.py)."""
INVALID = (UsageError, TyperException, AssertionError)
WITHOUT_ID = "NodeClaim"
"""Workflow type of a signal to the results of a query."""


def lines_with(*starts: str) -> Iterator[tuple[str, str]]:
    """Page and command without its comment, of each line of code that starts with one of the texts."""
    for page in PAGES:
        for line in code_of(page.read_text()).replace("\\\n", " ").splitlines():
            command = re.split(r"\s#\s|\s\|\s|\s>\s|;", line.strip())[0]
            if command.startswith(starts):
                yield str(page.relative_to(ROOT)), command


def options_of(tokens: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in pairwise(tokens) if name.startswith("-")}


def requests_to_workflows() -> list[tuple[str, str, str, str]]:
    """Kind of handler, workflow type, name and input."""
    found = set()
    for _, command in lines_with("temporal workflow "):
        _, _, kind, *rest = shlex.split(command)
        if kind in {"signal", "update"}:
            options = options_of(rest)
            ident = options.get("--workflow-id") or options.get("-w")
            found.add(
                (kind, TYPES[ident.split("/")[1]] if ident else WITHOUT_ID, options["--name"], options["--input"])
            )
    return sorted(found)


@pytest.mark.parametrize(("kind", "workflow_type", "name", "text"), requests_to_workflows())
def test_workflow_accepts_the_documented_input(kind: str, workflow_type: str, name: str, text: str) -> None:
    definition = DEFINITIONS[workflow_type]
    handler = (definition.signals if kind == "signal" else definition.updates)[name]
    assert handler.arg_types
    accepted: Any = TypeAdapter(handler.arg_types[0]).validate_json(text)
    assert set(yaml.safe_load(text)) <= set(type(accepted).model_fields)


def parse(command: Any, tokens: list[str], context: Any = None) -> None:
    """Raises one of INVALID."""
    context = command.context_class(command, parent=context, info_name=command.name)
    if hasattr(command, "resolve_command") and tokens != ["--help"]:
        _, found, rest = command.resolve_command(context, tokens)
        parse(found, rest, context)
    elif "--help" not in tokens:
        values, rest, _ = command.make_parser(context).parse_args(list(tokens))
        missing = [one.name for one in command.params if one.required and values.get(one.name or "") is None]
        assert not missing and not rest, (missing, rest)


def test_every_command_has_its_arguments() -> None:
    found = {command: page for page, command in lines_with("tenure ")}
    assert len(found) > 60
    root, failed = get_command(app), {}
    for command, page in found.items():
        try:
            parse(root, [one.strip("[]") for one in shlex.split(command)[1:]])
        except INVALID as error:
            failed[page, command] = str(error)
    assert failed == {}


def test_every_parameter_of_a_stack_exists() -> None:
    found = 0
    for page, command in lines_with("aws cloudformation deploy", "deploy --"):
        tokens = shlex.split(command)
        template = (ROOT / options_of(tokens)["--template-file"]).read_text()
        for parameter in re.findall(r"\b([A-Z]\w+)=", command.partition("--parameter-overrides")[2]):
            found += 1
            assert re.search(rf"^  {parameter}:", template, flags=re.M), (page, parameter)
    assert found >= 8


def test_every_aws_command_has_an_operation_and_its_options() -> None:
    texts = {str(page.relative_to(ROOT)): code_of(page.read_text()) for page in PAGES}
    found = [(page, command) for page, text in texts.items() for command in aws_commands(text)]
    assert len(found) >= 18
    assert {one: mistake for one in found if (mistake := find_mistake(one[1]))} == {}


def test_every_aws_command_names_its_region() -> None:
    """The region of a shell on call may be another one, or missing."""
    found = [(page, one) for page, text in lines_with("aws ") for one in aws_commands(text)]
    assert len(found) >= 15 and [one for one in found if "--region " not in one[1]] == []


def test_logs_of_the_worker_are_those_of_all_its_pods() -> None:
    """`kubectl logs deploy/tenure` prints one of two."""
    found = [command for _, command in lines_with("kubectl logs -n tenure", "kubectl -n tenure logs")]
    assert len(found) >= 5 and [one for one in found if "deploy/" in one] == []
    assert READ_LOGS in found


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("aws ec2 create-tags --resources i-1", "no --tags"),
        ("aws ec2 create-tags --resource i-1 --tags Key=a,Value=b", "unknown --resource; no --resources"),
        ("aws eks describe-clusters", "eks describe-clusters"),
        ("aws sqqs list-queues", "sqqs list-queues"),
        ("aws ec2 modify-instance-attribute --instance-id i-1 --no-ebs-optimized --region eu-west-1", ""),
    ],
)
def test_mistake_in_aws_command_is_reported(command: str, mistake: str) -> None:
    assert find_mistake(command) == mistake


def test_every_value_of_the_chart_exists() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "charts" / "tenure" / "values.yaml").read_text())
    settings = yaml.safe_load((ROOT / "deploy" / "charts" / "tenure" / "values.schema.json").read_text())
    known = settings["properties"]["settings"]["properties"]
    found = [name for _, command in lines_with("helm ") for name in re.findall(r"--set ([\w.]+)=", command)]
    assert len(found) >= 5
    for name in found:
        first, _, rest = name.partition(".")
        assert first in values and (first != "settings" or rest in known), name


def test_every_label_and_annotation_of_commands_exists() -> None:
    sources = [*(ROOT / "tenure" / "apis").glob("*.py"), *(ROOT / "deploy").rglob("*.yaml")]
    known = "\n".join(map(Path.read_text, sources))
    found = set()
    for page in PAGES:
        found |= set(
            re.findall(r"\b(?:[a-z0-9.]+\.)?(?:karpenter|tenure)\.sh/[a-z][a-z-]*[a-z]", code_of(page.read_text()))
        )
    names = {one for one in found if not re.search(r"/v\d", one)}
    assert len(names) >= 7 and {one for one in names if one not in known and one.split("/")[1] not in known} == set()


@pytest.mark.parametrize(
    "command", ["approve", "get --no-such-option", "pause a b c", "pause --for", "no-such-command"]
)
def test_invalid_command_is_noticed(command: str) -> None:
    with pytest.raises(INVALID):
        parse(get_command(app), command.split())


def test_documented_instance_types_are_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", (DOCS / "provisioning" / "simulate.md").read_text(), flags=re.DOTALL)
    path = tmp_path / "types.json"
    path.write_text(text)
    (found,), _ = read_types(path)
    assert found.name == "m5.large" and found.offerings[0].price == 0.096
