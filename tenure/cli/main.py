"""The `tenure` command. `tenure/cli/completion.py` is the entry point of the package.

Commands are imported when they are called: imports take most of the time, and the demo and the sandbox need an extra
that a worker's image does not have.
"""

import gc
import importlib
import sys
from importlib import metadata
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tenure.cli.command import with_summary
from tenure.cli.exit_codes import DONE, CommandFailed, UsageError, exit_code_of, exit_process, format_error, suggest
from tenure.cli.output import Output, Result

VERBS = {
    "adopt": "adopt.command",
    "approve": "disruption.approve",
    "reject": "disruption.approve:reject",
    "build": "admin.build:app",
    "cancel": "disruption.approve:cancel",
    "codec-server": "admin.servers:codec_server",
    "crds": "admin.crds",
    "demo": "demo.command",
    "sandbox": "sandbox.command:app",
    "doctor": "admin.doctor",
    "events": "nodes.events",
    "get": "nodes.get",
    "history": "nodes.history:app",
    "instance-types": "simulate.instance_types:app",
    "names": "nodes.names",
    "plan": "disruption.plan",
    "pause": "disruption.pause",
    "rebuild": "admin.rebuild",
    "resume": "disruption.pause:resume",
    "simulate": "simulate.command",
    "startup-times": "nodes.startups",
    "stuck": "nodes.stuck",
    "ui": "nodes.ui",
    "validate": "validate.command",
    "why": "nodes.why",
    "worker": "admin.servers",
    "version": "main",
}
"""Module below `tenure.cli`, and its attribute if that differs from the command's name: a function or a Typer app."""
HIDDEN: Final = ("names",)
"""For shell completion; not in the help."""
HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


def load_command(name: str) -> Any:
    """Raises ModuleNotFoundError if the required extra is not installed."""
    module, _, attribute = VERBS[name].partition(":")
    gc.disable()  # Imported modules stay alive: collecting them takes a tenth of the run time.
    try:
        found = getattr(importlib.import_module(f"tenure.cli.{module}"), attribute or name.replace("-", "_"))
    finally:
        gc.freeze()
        gc.enable()
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(context_settings=getattr(function, "context_settings", None))(function)
    command = get_command(found)
    command.name = name
    for one in (command, *getattr(command, "commands", {}).values()):
        one.context_settings = {**HELP_OPTIONS, **one.context_settings}
    return command


class Verbs(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """For the help, which also works without the sandbox extra."""
        return [name for name in sorted(VERBS) if name not in HIDDEN and _is_installed(name)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises `UsageError` with similar names for an unknown command."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UsageError(f"{args[0]}: no such command{suggest(args[0], VERBS)}; `tenure --help` lists them")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """None for an unknown command. Raises `UsageError` if the required extra is not installed."""
        if cmd_name not in VERBS:
            return None
        try:
            return with_summary(load_command(cmd_name))
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"{cmd_name}: module {missing.name} is not installed, try: pip install 'tenure[sandbox]'"
            ) from missing


def _is_installed(name: str) -> bool:
    try:
        load_command(name)
    except ModuleNotFoundError:
        return False
    return True


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tenure {installed_version()}")
        raise typer.Exit


@app.callback()
def tenure(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tenure: a node autoscaler for Kubernetes on AWS that runs each node as a durable Temporal workflow."""


def main(arguments: list[str]) -> int:
    """The exit code. An error that the user can correct is one line on stderr."""
    command = get_command(app)
    try:
        result = command.main(args=arguments, prog_name="tenure", standalone_mode=False)
    except (UsageError, CommandFailed, typer.TyperException, KeyboardInterrupt) as ended:
        if not isinstance(ended, KeyboardInterrupt):
            print(format_error(ended, "tenure"), file=sys.stderr)
        return exit_code_of(ended)
    return result if isinstance(result, int) else DONE


def run() -> None:
    exit_process(main(sys.argv[1:]))


def version(output: Output = "table") -> int:
    """Print the version."""
    return Result({"version": installed_version()}, [f"tenure {installed_version()}"]).print(output)


def installed_version() -> str:
    try:
        return metadata.version("tenure")
    except metadata.PackageNotFoundError:
        return "(not installed: run from source)"
