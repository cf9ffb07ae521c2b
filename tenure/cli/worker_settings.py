"""Commands that take the worker's settings from the environment and from flags."""

from collections.abc import Callable
from typing import Any

import typer

from tenure.cli.command import WORKER_FLAGS, command, log_to_stderr, option, with_options
from tenure.cli.exit_codes import UsageError
from tenure.cli.temporal_client import Connection
from tenure.settings import Settings, SettingsError, load
from tenure.worker.settings import temporal_security


def load_settings(context: typer.Context) -> Settings:
    log_to_stderr()
    try:
        return load(list(context.args))
    except SettingsError as error:
        raise UsageError(f"{context.command_path.removeprefix('tenure ')}: {error}") from error


def settings_command(function: Callable[..., Any]) -> Callable[..., int]:
    """A `command` whose parameter `settings` holds the worker's settings."""

    def run_with_settings(*, context: typer.Context, **arguments: Any) -> Any:
        return function(settings=load_settings(context), **arguments)

    run = with_options(run_with_settings, function, [option("context", typer.Context)], instead_of="settings")
    run.context_settings = WORKER_FLAGS  # type: ignore[attr-defined]
    return command(run)


def temporal_connection(settings: Settings) -> Connection:
    return Connection(
        settings.temporal_address,
        settings.temporal_namespace,
        settings.cluster_name,
        temporal_security(settings),
        settings.temporal_ui_url,
    )
