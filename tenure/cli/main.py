"""The `tenure` command: one short entry per verb; the work is done in the neighbours of this file.

`run` is the entry point of the package. Commands are imported when they are asked for, since the demo and the sandbox
need an extra that a worker's image does not carry.

`tenure version`.
"""

import gc
import importlib
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tenure.cli.exit_codes import DONE, CommandFailed, UsageError, exit_code_of, exit_process, format_error
from tenure.cli.output import Output, print_result


@dataclass(frozen=True)
class Verb:
    """Where a command is written. An attribute that is a Typer app becomes the command."""

    module: str
    attribute: str = "app"

    def load(self) -> Any:
        """Raises ModuleNotFoundError when the extra that it needs is not installed."""
        gc.disable()  # What is imported stays: looking through it for garbage is a tenth of the time, now and later.
        try:
            return getattr(importlib.import_module(self.module), self.attribute)
        finally:
            gc.freeze()
            gc.enable()

    def is_installed(self) -> bool:
        try:
            self.load()
        except ModuleNotFoundError:
            return False
        return True


VERBS = {
    "adopt": Verb("tenure.cli.adopt.command"),
    "approve": Verb("tenure.cli.disruption.approve"),
    "reject": Verb("tenure.cli.disruption.approve", "rejecting"),
    "cancel": Verb("tenure.cli.disruption.approve", "cancel_app"),
    "codec-server": Verb("tenure.cli.admin.servers", "codec_server_app"),
    "crds": Verb("tenure.cli.admin.crds"),
    "demo": Verb("tenure.cli.demo.command"),
    "sandbox": Verb("tenure.cli.sandbox.command"),
    "doctor": Verb("tenure.cli.admin.doctor"),
    "events": Verb("tenure.cli.nodes.events"),
    "get": Verb("tenure.cli.nodes.get"),
    "history": Verb("tenure.cli.nodes.history"),
    "instance-types": Verb("tenure.cli.simulate.instance_types"),
    "plan": Verb("tenure.cli.disruption.plan"),
    "pause": Verb("tenure.cli.disruption.pause", "pausing"),
    "rebuild": Verb("tenure.cli.admin.rebuild"),
    "resume": Verb("tenure.cli.disruption.pause", "resuming"),
    "simulate": Verb("tenure.cli.simulate.command"),
    "startup-times": Verb("tenure.cli.nodes.startups"),
    "stuck": Verb("tenure.cli.nodes.stuck"),
    "why": Verb("tenure.cli.nodes.why"),
    "worker": Verb("tenure.cli.admin.servers"),
    "version": Verb("tenure.cli.main", "version_app"),
}


class Verbs(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """For the help, which is there also where the sandbox is not."""
        return [name for name, verb in VERBS.items() if verb.is_installed()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """None for a word that is no command. Raises `Refused` when the extra that it needs is not installed."""
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        try:
            found = verb.load()
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"{cmd_name}: the module {missing.name} is not installed; try: pip install 'tenure[sandbox]'"
            ) from missing
        command = get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(cls=Verbs, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def tenure() -> None:
    """Tenure: every node of a Kubernetes cluster on AWS is one durable Temporal workflow."""


def main(arguments: list[str]) -> int:
    """The exit code. Whatever a user can mend is one line on stderr."""
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


version_app = typer.Typer(add_completion=False)


@version_app.command()
def print_version(output: Output = "table") -> None:
    """Print the version."""
    print_result(output, {"version": installed_version()}, f"tenure {installed_version()}")


def installed_version() -> str:
    try:
        return version("tenure")
    except PackageNotFoundError:
        return "(not installed: run from its source)"
