"""`aws` commands in texts, checked against botocore's models: service, operation, options and required options."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import jmespath
from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from botocore.session import Session

OF_EVERY_COMMAND = {"region", "query", "output", "profile"}
CUSTOM = {("cloudformation", "deploy"), ("ecr", "get-login-password"), ("eks", "wait"), ("s3", "sync")}
"""Commands of the AWS CLI itself, which are not operations of a service."""
RENAMED = {("eks", "update-cluster-version", "kubernetes-version"): "version"}
"""Options that would conflict with those of every command, and the member of the request."""


def aws_commands(text: str) -> Iterator[str]:
    """Commands on separate lines or in prose that continues after `, `. Those in `$(...)` come first."""
    for line in text.replace("\\\n", " ").splitlines():
        while inner := re.search(r"\$\(([^()]*)\)", line):
            yield from _split(inner[1])
            line = f"{line[: inner.start()]}VALUE{line[inner.end() :]}"
        yield from _split(line)


def _split(line: str) -> Iterator[str]:
    """Without comments and the rest of a sentence."""
    for part in re.split(r"\s#\s|[|;]|&&|,\s", line):
        if re.match(r"\s*aws [a-z0-9-]+ [a-z]", part):
            yield part.strip()


def find_mistake(command: str) -> str:
    """The first part of a command that the AWS CLI would reject, or an empty text."""
    _, service, operation, *rest = shlex.split(command)
    if (service, operation) in CUSTOM:
        return ""
    found = _operations(service).get(operation)
    if found is None:
        return f"{service} {operation}"
    values = {one.partition("=")[0].removeprefix("--"): value for one, value in _options(rest)}
    options = {RENAMED.get((service, operation, name), name): value for name, value in values.items()}
    members = {xform_name(name, "-"): shape for name, shape in found.input_shape.members.items()}
    flags = {f"no-{name}" for name, shape in members.items() if _is_flag(shape)}
    required = {xform_name(name, "-") for name in found.input_shape.required_members}
    if "query" in options:
        jmespath.compile(options["query"])
    unknown = sorted(options.keys() - members.keys() - flags - OF_EVERY_COMMAND)
    missing = sorted(required - options.keys())
    return "; ".join([*(f"unknown --{one}" for one in unknown), *(f"no --{one}" for one in missing)])


def _options(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for number, argument in enumerate(arguments):
        if argument.startswith("--"):
            following = arguments[number + 1] if number + 1 < len(arguments) else ""
            yield argument, following


def _is_flag(shape: Any) -> bool:
    """A boolean, or a structure whose only field `Value` is one, which the AWS CLI treats alike."""
    if shape.type_name == "structure" and list(shape.members) == ["Value"]:
        return _is_flag(shape.members["Value"])
    return bool(shape.type_name == "boolean")


@cache
def _operations(service: str) -> dict[str, Any]:
    """Models of operations by the name of their command; empty for an unknown service."""
    try:
        model = Session().get_service_model(service)
    except UnknownServiceError:
        return {}
    return {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}
