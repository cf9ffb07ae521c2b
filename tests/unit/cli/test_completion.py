"""Shell completion: options from the generated file, names from the cache, and no import of a command."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.cli import completion

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the cluster `demo`, with two nodes and a NodePool."""
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path))
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    completion.write_names("demo", {"nodes": ["web-1", "web-2"], "nodepools": ["web", "gpu"]})
    return completion.cache_path("demo")


def complete(line: str) -> list[str]:
    *words, incomplete = line.split(" ")
    commands = json.loads((ROOT / "tenure" / "cli" / "completions.json").read_text())
    return [value for value, _ in completion.complete(commands, words, incomplete)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("g", ["get"]),
        ("build pro", ["promote"]),
        ("get --sort", ["--sort-by"]),
        ("get --sort-by ph", ["phase"]),
        ("get -o json --wat", ["--watch"]),
        ("get --output w", ["wide"]),
        ("why web", ["web-1", "web-2"]),
        ("get web-1 web", ["web-2"]),
        ("get --nodepool ", ["web", "gpu"]),
        ("get --overdue web-2", ["web-2"]),
        ("history export --to ", []),
        ("unknown web", []),
    ],
)
def test_completes(line: str, expected: list[str], cache: Path) -> None:
    assert complete(line) == expected


@pytest.mark.parametrize(
    ("variables", "folder"),
    [({"XDG_CACHE_HOME": "/x"}, "/x/tenure"), ({"XDG_CACHE_HOME": "/x", "TENURE_CACHE": "/y"}, "/y")],
)
def test_names_are_in_the_cache_folder_of_tenure(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_CACHE", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert completion.cache_path("demo") == Path(folder) / "names" / "demo.json"


@pytest.mark.parametrize("line", ["get --cluster-name other web", "get --cluster-name=other web"])
def test_names_are_those_of_the_cluster_on_the_line(line: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_start_refresh", lambda *_: None)
    assert complete(line) == []
    completion.write_names("other", {"nodes": ["web-9"]})
    assert complete(line) == ["web-9"]


def test_old_names_are_offered_and_renewed_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "posix_spawn", lambda _, arguments, *__, **___: started.append(arguments))
    old = time.time() - 60
    os.utime(cache, (old, old))
    for _ in range(3):
        assert complete("get --temporal-address=here:1 web-1") == ["web-1"]
    (arguments,) = started
    assert arguments[1:] == ["-m", "tenure", "names", "--temporal-address", "here:1"]


@pytest.mark.parametrize(
    ("shell", "line", "expected"),
    [
        ("bash", {"COMP_WORDS": "tenure why web-1", "COMP_CWORD": "2"}, "web-1\n"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tenure why web-1"}, "_arguments '*: :((\"web-1\"))'\n"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tenure validate "}, "_files\n"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "tenure ge", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "get\tList nodes"),
    ],
)
def test_shells_are_answered_without_importing_commands(
    shell: str, line: dict[str, str], expected: str, cache: Path
) -> None:
    program = (
        "import sys; from tenure.cli import completion; code = completion._print_completions(sys.argv[1]);"
        "assert not {'typer', 'temporalio', 'pydantic'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"complete_{shell}"],
        env=dict(os.environ) | line,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(expected)


@pytest.mark.parametrize(("line", "code"), [("tenure ge", 0), ("tenure validate ", 1)])
def test_fish_completes_files_if_there_is_no_value(line: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "is-args")
    assert completion._print_completions("complete_fish") == code
