"""Shell completion without the imports of a command, and the entry point of the package.

The scripts of `tenure --install-completion` call the program with `_TENURE_COMPLETE`, as Typer does. Typer would import
the command to learn its options, which takes a second. Here, options come from `completions.json`, which
`python -m tools.generate` writes, and names of nodes and NodePools from a file in the user's cache folder. A file that
is older than `FRESH_SECONDS` is renewed in the background by `tenure names`, for the next completion.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

from tenure.cache_folder import cache_folder

VARIABLE: Final = "_TENURE_COMPLETE"
FRESH_SECONDS: Final = 10.0
_SHELLS: Final = ("complete_bash", "complete_zsh", "complete_fish")
_COMMANDS_FILE: Final = Path(__file__).with_name("completions.json")


def run() -> None:
    """Complete a command line, or run the command."""
    shell = os.environ.get(VARIABLE, "")
    if shell in _SHELLS:
        sys.exit(_print_completions(shell))
    from tenure.cli.main import run  # noqa: PLC0415 - completion must not wait for it

    run()


def _print_completions(shell: str) -> int:
    """The exit code; fish learns from it whether to complete files."""
    arguments, incomplete = _read_arguments(shell)
    found = list(complete(json.loads(_COMMANDS_FILE.read_text()), arguments, incomplete))
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if found else 1
    if shell == "complete_zsh":
        values = "\n".join(f'"{_escape(value)}":"{_escape(text)}"' if text else f'"{value}"' for value, text in found)
        print(f"_arguments '*: :(({values}))'" if found else "_files")
    else:
        has_help = shell == "complete_fish"
        print("\n".join(f"{value}\t{text}" if has_help and text else value for value, text in found))
    return 0


def _read_arguments(shell: str) -> tuple[list[str], str]:
    """The complete arguments after the program, and the incomplete one."""
    if shell == "complete_bash":
        arguments, position = os.environ.get("COMP_WORDS", "").split(), int(os.environ.get("COMP_CWORD", "1"))
        return arguments[1:position], arguments[position] if position < len(arguments) else ""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    arguments = line.split()[1:]
    return (arguments[:-1], arguments[-1]) if arguments and not line.endswith(" ") else (arguments, "")


def _escape(text: str) -> str:
    for special, replacement in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(special, replacement)
    return text


def complete(command: Mapping[str, Any], arguments: Sequence[str], incomplete: str) -> Iterator[tuple[str, str]]:
    """Values with their help text, empty for names. `command` is the root of `completions.json`."""
    line = list(arguments)
    while arguments and arguments[0] in command.get("commands", {}):
        command, arguments = command["commands"][arguments[0]], arguments[1:]
    options: Mapping[str, Any] = command.get("options", {})
    expected = options.get(arguments[-1]) if arguments else None
    if expected and expected["values"] is not None:
        candidates = _list_values(expected["values"], line)
    elif incomplete.startswith("-"):
        candidates = {name: one["help"] for name, one in options.items()}
    elif "commands" in command:
        candidates = {name: one["help"] for name, one in command["commands"].items()}
    else:
        candidates = _list_values(command.get("arguments", []), line)
    unused = ((name, text) for name, text in candidates.items() if name not in arguments)
    return ((name, text) for name, text in unused if name.startswith(incomplete))


def _list_values(values: Sequence[str] | str, line: Sequence[str]) -> dict[str, str]:
    """`values`: a list, or the kind of names in the cache: `nodes` or `nodepools`."""
    return dict.fromkeys(read_names(line).get(values, ()) if isinstance(values, str) else values, "")


def read_names(line: Sequence[str]) -> dict[str, list[str]]:
    """Cached names by kind; empty at the first completion for a cluster."""
    connection = _connection_options(line)
    cluster = connection.get("--cluster-name") or os.environ.get("CLUSTER_NAME", "")
    if not cluster:
        return {}
    path = cache_path(cluster)
    names: dict[str, list[str]] = {}
    age = FRESH_SECONDS
    with suppress(OSError, ValueError):  # Without a file, or before the first `tenure names` has ended.
        age = time.time() - path.stat().st_mtime
        names = json.loads(path.read_text())
    if age >= FRESH_SECONDS:
        _start_refresh(path, connection)
    return names


def _connection_options(line: Sequence[str]) -> dict[str, str]:
    pairs = (argument.partition("=") for argument in line)
    options = {name: value for name, equals, value in pairs if equals}
    options |= dict(pairwise(line))
    return {name: value for name, value in options.items() if name.startswith(("--cluster-name", "--temporal-"))}


def cache_path(cluster: str) -> Path:
    """The file of `tenure names`."""
    return cache_folder() / "names" / f"{cluster.replace('/', '_')}.json"


def write_names(cluster: str, names: Mapping[str, Sequence[str]]) -> None:
    """Replace the file as a whole, since a completion may read it meanwhile."""
    path = cache_path(cluster)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(names))
    new.replace(path)


def _start_refresh(path: Path, connection: Mapping[str, str]) -> None:
    """Start `tenure names` in the background, at most once in `FRESH_SECONDS`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    arguments = [sys.executable, "-m", "tenure", "names", *chain.from_iterable(connection.items())]
    null = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    os.posix_spawn(sys.executable, arguments, environment, file_actions=null, setpgroup=0)
