"""`tenure/cli/completions.json`: the commands and options that shell completion offers."""

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from tenure.cli.main import HIDDEN, VERBS, app, load_command

FILE = Path(__file__).parents[2] / "tenure" / "cli" / "completions.json"
NAMES = {"names": "nodes", "name": "nodes", "node": "nodes", "nodepool": "nodepools"}
"""Kind of names by parameter."""


def text() -> str:
    """One line per command."""
    commands = {name: _describe(load_command(name)) for name in VERBS if name not in HIDDEN}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(commands.items()))
    options = json.dumps(_describe(get_command(app))["options"])
    return f'{{"options": {options}, "commands": {{\n{lines}\n}}}}\n'


def _describe(command: Any) -> dict[str, Any]:
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    described = {
        "help": _first_sentence(command.help),
        "options": {
            name: {"help": _first_sentence(one.help), "values": _values(one)}
            for one in options
            for name in (*one.opts, *one.secondary_opts)
            if name.startswith("--")
        },
        "arguments": next((_values(one) for one in arguments), []),
    }
    if commands := getattr(command, "commands", None):
        described["commands"] = {name: _describe(one) for name, one in commands.items()}
    return described


def _values(parameter: Any) -> list[str] | str | None:
    """None for a flag; an empty list for free text and for files."""
    annotation = parameter.type_descriptor.annotation
    if annotation is bool:
        return None
    kinds = [one for one in (annotation, *get_args(annotation)) if get_origin(one) is Literal]
    return NAMES.get(parameter.name) or [value for one in kinds for value in get_args(one)]


def _first_sentence(help_text: str | None) -> str:
    return " ".join((help_text or "").split()).partition(". ")[0].removesuffix(", e.g").rstrip(".")
