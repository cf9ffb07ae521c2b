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
AWS_COMMAND = re.compile(r"\baws (?=[a-z0-9-]+ [a-z-]{4,})")
STACK = re.compile(r"--template-file (\S+) .*?--parameter-overrides ((?:\w+=[\w.-]+ ?)+)")
PARAMETERS = re.compile(r"^Parameters:\n(.*?)^\w", flags=re.M | re.S)


def find_faulty_remedies(found: Iterable[Finding]) -> list[str]:
    """Remedies of problems and advice without a command, or with one that the AWS CLI or a stack rejects, or that uses
    the region of the shell."""
    todos = [one.todo for one in found if one.level in ("problem", "advice")]
    return [one for one in todos if not COMMAND.search(f"{one} ") or _has_mistake(one)]


def _has_mistake(todo: str) -> bool:
    return (
        has_command_without_region(todo)
        or any(map(find_mistake, aws_commands(todo)))
        or any(set(re.findall(r"(\w+)=", used)) - _parameters(file) for file, used in STACK.findall(todo))
    )


def has_command_without_region(todo: str) -> bool:
    """`--region` stands before another command in `$(...)`."""
    return any("--region " not in one for one in AWS_COMMAND.split(todo)[1:])


def _parameters(file: str) -> set[str]:
    (section,) = PARAMETERS.findall((ROOT / file).read_text())
    return set(re.findall(r"^  (\w+):$", section, flags=re.M))
