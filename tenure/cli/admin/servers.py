"""`tenure worker` replaces this process with the controller, which then receives signals and sets the exit code.
`tenure codec-server` decrypts payloads for Temporal's UI and CLI.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from tenure.cli.command import WORKER_FLAGS
from tenure.cli.exit_codes import UsageError
from tenure.controller.temporal.codec_server import make_app as server
from tenure.controller.temporal.encryption import EncryptionCodec
from tenure.controller.temporal.payload_codec import VARIABLE, read_keys
from tenure.model.errors import BadInput

ROOT = Path(__file__).parents[3]


def worker(context: typer.Context) -> None:
    """Run the worker. Settings come from the environment and flags; `tenure worker --help` lists them."""
    os.execv(sys.executable, worker_command(context.args))


# The worker prints its own `--help`.
worker.context_settings = {**WORKER_FLAGS, "help_option_names": []}  # type: ignore[attr-defined]


def worker_command(arguments: list[str]) -> list[str]:
    """With the path of the worker, so that it starts from any folder."""
    return [sys.executable, str(ROOT / "worker.py"), *arguments]


Keys = Annotated[
    str, typer.Option("--temporal-payload-keys", envvar=VARIABLE, help="File with payload encryption keys.")
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; every client can read all payloads.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")]
Origin = Annotated[str, typer.Option("--origin", help="Origin of Temporal's UI in the browser.")]


def codec_server(
    keys: Keys = "", host: Host = "127.0.0.1", port: Port = 8888, origin: Origin = "http://localhost:8233"
) -> None:
    """Decrypt payloads for Temporal's UI and CLI until stopped. Set its address as the UI's codec endpoint, or pass it
    to `temporal` with --codec-endpoint."""
    if not keys:
        raise UsageError(f"codec-server: --temporal-payload-keys or {VARIABLE} is required, as for the worker")
    try:
        codec = EncryptionCodec(read_keys(keys))
    except BadInput as invalid:
        raise UsageError(invalid.message) from invalid
    typer.echo(f"decrypting at http://{host}:{port} for {origin}; stop with Ctrl-C")
    try:
        web.run_app(server(codec, origin), host=host, port=port, print=None)
    except OSError as error:
        raise UsageError(f"codec-server: --port {port}: {error.strerror or error}; choose a free port") from error
