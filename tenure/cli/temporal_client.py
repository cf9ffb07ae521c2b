"""The Temporal connection of commands and its options."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from tenure.cli.command import command, option, with_options
from tenure.cli.exit_codes import CommandFailed, UsageError
from tenure.controller.temporal.connection import Security, why_not
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.payload_codec import codec_of, decrypt_all
from tenure.model.errors import BadInput
from workflows import ids

SECONDS = 3.0
PLAIN: Final = Security()


@dataclass(frozen=True)
class Connection:
    address: str
    namespace: str
    cluster: str
    security: Security = PLAIN
    ui: str = ""
    """Address of the Temporal UI; empty if unknown."""

    def page_url(self, workflow_id: str) -> str:
        """The page of a workflow in the Temporal UI; empty if its address is unknown."""
        return ids.page_url(self.ui, self.namespace, workflow_id)

    async def connect(self) -> Client:
        """Raises `UsageError` if Temporal does not respond."""
        if not self.cluster:
            raise UsageError("--cluster-name: required, set it or CLUSTER_NAME, e.g. --cluster-name demo")
        try:
            connection = Client.connect(
                self.address,
                namespace=self.namespace,
                data_converter=replace(pydantic_data_converter, payload_codec=codec_of(self.security.payload_keys)),
                tls=self.security.tls_config(),
                api_key=self.security.read_api_key(),
            )
            async with asyncio.timeout(SECONDS):
                return await connection
        except BadInput as invalid:
            raise UsageError(invalid.message) from invalid
        except TimeoutError:
            raise UsageError(self._address_error(f"no response within {SECONDS:g} s")) from None
        except (RuntimeError, ValueError) as error:
            raise UsageError(self._address_error(why_not(str(error)))) from error

    async def connect_to_cluster(self) -> Client:
        """Raises `UsageError` also if Temporal has no workflow of the cluster."""
        client = await self.connect()
        if not (await client.count_workflows(f"WorkflowId STARTS_WITH '{self.cluster}/'")).count:
            where = f"namespace {client.namespace} has no workflow of cluster {self.cluster}"
            raise UsageError(f"--cluster-name: {where}; set the CLUSTER_NAME of the worker, and check that one runs")
        return client

    def decrypt_events(self, events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
        """Decrypt events in place. Raises `UsageError` if the keys do not match or are not set."""
        try:
            decrypted = codec_of(self.security.payload_keys).decrypt
            for event in events:
                decrypt_all(event, decrypted)
        except BadInput as invalid:
            raise UsageError(invalid.message) from invalid
        return events

    def _address_error(self, why: str) -> str:
        return f"--temporal-address: no Temporal at {self.address} (or TEMPORAL_ADDRESS): {why}"


def _text(flag: str, variable: str, help_text: str) -> Any:
    return Annotated[str, typer.Option(flag, envvar=variable, help=help_text)]


_TLS: Final = Annotated[bool, typer.Option("--temporal-tls", envvar="TEMPORAL_TLS", help="Connect with TLS.")]
_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "address": (_text("--temporal-address", "TEMPORAL_ADDRESS", "host:port of Temporal."), "127.0.0.1:7233"),
    "namespace": (_text("--temporal-namespace", "TEMPORAL_NAMESPACE", "Temporal namespace."), "default"),
    "cluster": (_text("--cluster-name", "CLUSTER_NAME", "Cluster name (must match the worker's CLUSTER_NAME)."), ""),
    "ui": (_text("--temporal-ui-url", "TEMPORAL_UI_URL", "Address of the Temporal UI, for links."), ""),
    "tls": (_TLS, False),
    "api_key": (
        _text("--temporal-api-key", "TEMPORAL_API_KEY", "API key; prefer the environment variable. Implies TLS."),
        "",
    ),
    "api_key_path": (
        _text("--temporal-api-key-path", "TEMPORAL_API_KEY_PATH", "File with the API key. Implies TLS."),
        "",
    ),
    "ca": (_text("--temporal-ca", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "PEM file with the server CA."), ""),
    "cert": (_text("--temporal-cert", "TEMPORAL_TLS_CLIENT_CERT_PATH", "PEM client certificate, for mTLS."), ""),
    "key": (_text("--temporal-key", "TEMPORAL_TLS_CLIENT_KEY_PATH", "PEM client key."), ""),
    "payload_keys": (
        _text("--temporal-payload-keys", "TEMPORAL_PAYLOAD_KEYS_PATH", "File with payload encryption keys."),
        "",
    ),
    "server_name": (_text("--temporal-server-name", "TEMPORAL_TLS_SERVER_NAME", "Server name (SNI)."), ""),
}
_PREFIX: Final = "temporal__"
"""Separates these parameters from those of the command."""


def temporal_command(function: Callable[..., Any]) -> Callable[..., int]:
    """A `command` whose parameter `connection` comes from the Temporal options, which every command shares.

    An RPC error while `function` runs becomes `CommandFailed`."""

    async def run_with_connection(**arguments: Any) -> Any:
        given = {name: arguments.pop(_PREFIX + name) for name in _OPTIONS}
        address, namespace, cluster, ui = (given.pop(name) for name in ("address", "namespace", "cluster", "ui"))
        connection = Connection(address, namespace, cluster, Security(**given), ui)
        try:
            return await function(connection=connection, **arguments)
        except RPCError as error:
            raise CommandFailed(format_rpc_error(error, namespace=namespace, address=address)) from error

    options = [option(_PREFIX + name, annotation, default) for name, (annotation, default) in _OPTIONS.items()]
    return command(with_options(run_with_connection, function, options, instead_of="connection"))
