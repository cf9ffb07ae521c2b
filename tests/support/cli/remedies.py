"""Commands in the remedies of `tenure doctor`."""

import re
from collections.abc import Iterable

from tenure.model.errors import Finding
from tests.support.aws.commands import aws_commands, find_mistake
from tests.support.paths import ROOT

COMMAND = re.compile(
    r"\b(?:aws [a-z0-9-]+ [a-z-]{4,} |helm upgrade |kubectl (?:-n \S+ )?(?:apply|edit|logs|scale) "
    r"|temporal operator |tenure (?:adopt|build|crds|doctor)\b)"
)
STACK = re.compile(r"--template-file (\S+) .*?--parameter-overrides ((?:\w+=[\w.-]+ ?)+)")
PARAMETERS = re.compile(r"^Parameters:\n(.*?)^\w", flags=re.M | re.S)


def find_faulty_remedies(found: Iterable[Finding]) -> list[str]:
    """Remedies of problems and advice without a command, or with one that the AWS CLI or a stack rejects."""
    todos = [one.todo for one in found if one.level in ("problem", "advice")]
    return [one for one in todos if not COMMAND.search(f"{one} ") or _has_mistake(one)]


def _has_mistake(todo: str) -> bool:
    return any(map(find_mistake, aws_commands(todo))) or any(
        set(re.findall(r"(\w+)=", used)) - _parameters(file) for file, used in STACK.findall(todo)
    )


def _parameters(file: str) -> set[str]:
    (section,) = PARAMETERS.findall((ROOT / file).read_text())
    return set(re.findall(r"^  (\w+):$", section, flags=re.M))
