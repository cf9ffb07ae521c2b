"""The common form of commands: a function whose parameters are the options and whose `Result` is printed.

`temporal_client.temporal_command` and `worker_settings.settings_command` build on it. Options that several commands
take are declared here.
"""

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import update_wrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.exit_codes import UsageError
from tenure.cli.output import Output
from tenure.model.errors import Fault

NodePoolName = Annotated[str, typer.Option("--nodepool", help="Only this NodePool.")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", envvar="KUBECONFIG", help="Path of the kubeconfig file.")]
RequestedBy = Annotated[str, typer.Option("--by", envvar="USER", help="Requester; shown with the request.")]

WORKER_FLAGS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""`context_settings` of a command that takes the worker's flags."""


class CommandGroup(TyperGroup):
    """A group whose help shows the complete first sentence of each command."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """None for an unknown command."""
        return with_summary(super().get_command(ctx, cmd_name))


def with_summary(found: Any) -> Any:
    """The command with its first sentence as summary; Typer cuts longer ones off. None stays None."""
    if found is not None and found.help:
        found.short_help = re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(found.help.split("\n\n")[0].split()))[0]
    return found


def option(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def command(function: Callable[..., Any]) -> Callable[..., int]:
    """Wrap `function`, which may be async, for Typer.

    --output selects the format of the `Result` that `function` returns. A function with a parameter `output` declares
    its formats itself. A `Fault` becomes a usage error."""
    has_formats = "output" in inspect.signature(function).parameters

    def run(*, output: str, **arguments: Any) -> int:
        try:
            found = function(**arguments, **({"output": output} if has_formats else {}))
            result = asyncio.run(found) if inspect.iscoroutine(found) else found
        except Fault as fault:
            raise UsageError(f"{function.__name__.replace('_', '-')}: {fault.message}") from fault
        code: int = result.print(output)
        return code

    return with_options(run, function, [] if has_formats else [option("output", Output, "table")])


def with_options(
    wrapper: Callable[..., Any],
    function: Callable[..., Any],
    options: Iterable[inspect.Parameter],
    instead_of: str = "",
) -> Callable[..., Any]:
    """Give `wrapper` the name, help and parameters of `function`; `options` replace the parameter `instead_of`."""
    signature = inspect.signature(function, eval_str=True)
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()]
    parameters = [*(one for one in own if one.name != instead_of), *options]
    update_wrapper(wrapper, function)
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper


def log_to_stderr(level: int = logging.WARNING) -> None:
    """For commands that call code of the worker: stdout has only the result."""
    import structlog  # noqa: PLC0415 - most commands do not need it

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def parse_length(option_name: str, text: str, example: str, *, zero: bool = True) -> timedelta:
    """Raises `UsageError` for an invalid or negative duration and for `Never`; also for zero unless `zero`."""
    try:
        length = parse_duration(text)
    except DurationError as error:
        raise UsageError(f"{option_name}: {error}") from error
    if length is None or length < timedelta(0) or not (length or zero):
        raise UsageError(f"{option_name}: invalid duration {text!r}, expected a length of time, e.g. {example}")
    return length
