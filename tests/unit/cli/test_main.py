"""Command line: invalid input is one line on stderr with the problem and its place, and exit code 2."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tenure.cli.exit_codes import CommandFailed, UsageError, exit_code_of


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLUSTER_NAME", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bogus"], "bogus: no such command; `tenure --help` lists them"),
        (["gett"], "gett: no such command, did you mean get?"),
        (["version", "--loud"], "--loud"),
        (["why"], "'name'"),
        (["why", "node-1"], "CLUSTER_NAME"),
        (["why", "node-1", "--cluster-name", "demo", "--temporal-address", "127.0.0.1:1"], "127.0.0.1:1"),
        (["stuck", "--cluster-name", "demo", "--temporal-address", "nonsense"], "nonsense"),
        (["startup-times", "--kubeconfig", "/no/such"], "startup-times: "),
        (["demo", "--pods", "many"], "'--pods': must be a valid integer (see"),
        (["demo", "--pods", "0"], "'--pods': must be greater than or equal to 1 (see"),
        (["sandbox", "scale", "inflate", "x"], "'replicas': must be a valid integer (see"),
        (["demo", "--boot-seconds", "-1"], "--boot-seconds"),
        (["doctor", "--cluster-name", "demo", "-o", "xml"], "-o"),
        (["doctor", "--cluster-name", "demo", "--aws-regions", "x"], "--aws-regions"),
        (["events", "-o", "xml"], "-o"),
        (["events", "--since", "soon"], "--since"),
        (["events", "--since", "0s"], "--since"),
        (["events", "--since", "Never"], "--since"),
        (["adopt", "--dry-run", "--back"], "exclude each other"),
        (["adopt", "--karpenter", "karpenter"], "expected namespace/name"),
        (["adopt", "--within", "soon"], "--within"),
        (["adopt", "--kubeconfig", "/no/such", "--yes"], "/no/such"),
        (["adopt", "--kubeconfic", "x"], "not known"),
    ],
)
def test_invalid_input_is_one_line_with_exit_code_2(
    arguments: list[str], expected: str, capsys: CaptureFixture[str]
) -> None:
    assert cli_main.main(arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert expected in line
    assert line.startswith("tenure")
    assert captured.out == ""


@pytest.mark.parametrize("group", [[], ["sandbox"]])
def test_group_without_command_shows_help(group: list[str], capsys: CaptureFixture[str]) -> None:
    assert cli_main.main(group) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: tenure") and "Commands:" in lines


@pytest.mark.parametrize("group", ["", "build", "history", "instance-types", "sandbox"])
def test_help_has_complete_sentences_and_one_form(group: str, capsys: CaptureFixture[str]) -> None:
    assert cli_main.main([*group.split(), "-h"]) == 0
    printed = capsys.readouterr().out
    listed = printed.partition("\nCommands:")[2]
    assert "..." not in listed and "╭" not in printed and max(map(len, printed.splitlines())) <= 80
    commands = re.findall(r"^  ([a-z-]+)  ", listed, flags=re.MULTILINE)
    assert commands and (group or commands == sorted(commands))


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_worker_prints_its_own_help(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda path, arguments: executed.append(arguments[2:]))
    assert cli_main.main(["worker", option]) == 0
    assert executed == [[option]]


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli_main.VERBS, "demo", "no_such_module")
    assert cli_main.main(["demo"]) == 2
    assert "tenure[sandbox]" in capsys.readouterr().err
    assert cli_main.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "  why " in listed and "  demo " not in listed


def test_interrupt_exits_with_130_silently(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("tenure.cli.main.installed_version", interrupted)
    assert cli_main.main(["version"]) == 130
    assert capsys.readouterr().err == ""


def test_version_prints_one_line(capsys: CaptureFixture[str]) -> None:
    assert cli_main.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("tenure ")
    assert cli_main.main(["version", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version"}


def test_version_is_also_an_option(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    monkeypatch.setattr("tenure.cli.main.metadata.version", {"tenure": "1.2.3"}.get)
    assert cli_main.main(["--version"]) == 0
    assert capsys.readouterr().out == "tenure 1.2.3\n"


def list_commands(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    """The command itself, or all commands of a group."""
    below = getattr(found, "commands", None)
    if below is None:
        yield name, found
    for subcommand, one in (below or {}).items():
        yield from list_commands(f"{name} {subcommand}", one)


def test_every_responding_command_has_json_output() -> None:
    """The others run until they are stopped."""
    every = [one for name in cli_main.VERBS for one in list_commands(name, cli_main.load_command(name))]
    flags = {name: {flag for parameter in one.params for flag in parameter.opts} for name, one in every}
    without_output = {name for name, known in flags.items() if not {"--output", "-o"} <= known}
    assert without_output == {"demo", "worker", "codec-server"}


def test_exit_code_is_1_for_failures_and_2_for_usage_errors() -> None:
    assert (exit_code_of(CommandFailed("pods")), exit_code_of(UsageError("--pods"))) == (1, 2)


@pytest.mark.parametrize("command", ["get", "why"])
def test_query_commands_import_no_heavy_modules(command: str) -> None:
    """Imports are half of the response time."""
    program = f"import sys, tenure.cli.main, tenure.cli.nodes.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert f"tenure.cli.nodes.{command}" in loaded
    heavy = (
        "tenure.model.nodeclaim.state",
        "tenure.apis.nodepool",
        "tenure.policy",
        "activities",
        "kubernetes",
        "boto3",
        "rich.console",
    )
    assert [one for one in heavy if one in loaded] == []
