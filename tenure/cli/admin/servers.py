"""`tenure worker`: the controller's process, as the image starts it.

It takes this process's place, so that signals, exit code and logs are the worker's own.

`tenure codec-server`: lets Temporal's UI and CLI show what is encrypted, to whoever may reach it.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from tenure.cli.exit_codes import UsageError
from tenure.controller.temporal.codec_server import make_app as server
from tenure.controller.temporal.encryption import EncryptionCodec
from tenure.controller.temporal.payload_codec import VARIABLE, read_keys
from tenure.model.errors import BadInput

app = typer.Typer(add_completion=False)
ROOT = Path(__file__).parents[3]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def worker(context: typer.Context) -> None:
    """Run the worker. Settings come from the environment and flags; `tenure worker --help` lists them."""
    os.execv(sys.executable, worker_command(context.args))


def worker_command(arguments: list[str]) -> list[str]:
    """The worker by its path, so that it starts from any folder."""
    return [sys.executable, str(ROOT / "worker.py"), *arguments]


codec_server_app = typer.Typer(add_completion=False)

Keys = Annotated[str, typer.Option("--temporal-payload-keys", envvar=VARIABLE, help="File: what encrypts.")]
Host = Annotated[str, typer.Option("--host", help="Whoever reaches it reads everything.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535)]
Origin = Annotated[str, typer.Option("--origin", help="Of Temporal's UI, as the browser has it.")]


@codec_server_app.command("codec-server")
def codec_server(
    keys: Keys = "", host: Host = "127.0.0.1", port: Port = 8888, origin: Origin = "http://localhost:8233"
) -> None:
    """Decrypt for Temporal's UI and CLI, until it is stopped. Give its address to the UI as codec endpoint, or to
    `temporal` with --codec-endpoint."""
    if not keys:
        raise UsageError(
            f"codec-server: which keys? Give --temporal-payload-keys, or set {VARIABLE}, as for the worker"
        )
    try:
        codec = EncryptionCodec(read_keys(keys))
    except BadInput as invalid:
        raise UsageError(invalid.message) from invalid
    typer.echo(f"decrypts at http://{host}:{port} for pages of {origin}; stop it with Ctrl-C")
    try:
        web.run_app(server(codec, origin), host=host, port=port, print=None)
    except OSError as error:
        raise UsageError(f"codec-server: --port {port}: {error.strerror or error}; name a free one") from error
