"""`tenure codec-server`: lets Temporal's UI and CLI show what is encrypted, to whoever may reach it."""

from typing import Annotated

import typer
from aiohttp import web

from cli.exits import Refused
from controller.codec_server import app as server
from controller.encrypting import Encrypting
from controller.payload_codec import VARIABLE, read_keys
from model.faults import BadInput

app = typer.Typer(add_completion=False)

Keys = Annotated[str, typer.Option("--temporal-payload-keys", envvar=VARIABLE, help="File: what encrypts.")]
Host = Annotated[str, typer.Option("--host", help="Whoever reaches it reads everything.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535)]
Origin = Annotated[str, typer.Option("--origin", help="Of Temporal's UI, as the browser has it.")]


@app.command("codec-server")
def codec_server(
    keys: Keys = "", host: Host = "127.0.0.1", port: Port = 8888, origin: Origin = "http://localhost:8233"
) -> None:
    """Decrypt for Temporal's UI and CLI, until it is stopped. Give its address to the UI as codec endpoint, or to
    `temporal` with --codec-endpoint."""
    if not keys:
        raise Refused(f"codec-server: which keys? Give --temporal-payload-keys, or set {VARIABLE}, as for the worker")
    try:
        codec = Encrypting(read_keys(keys))
    except BadInput as wrong:
        raise Refused(wrong.message) from wrong
    typer.echo(f"decrypts at http://{host}:{port} for pages of {origin}; stop it with Ctrl-C")
    try:
        web.run_app(server(codec, origin), host=host, port=port, print=None)
    except OSError as error:
        raise Refused(f"codec-server: --port {port}: {error.strerror or error}; name a free one") from error
