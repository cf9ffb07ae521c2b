"""The way to Temporal for commands that ask about nodes: their options, which are the same everywhere."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Final, TypeVar

import typer
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.cli.exit_codes import CommandFailed, UsageError
from tenure.controller.temporal.connection import Security, why_not
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.payload_codec import codec_of, decrypt_all
from tenure.model.errors import BadInput

SECONDS = 5.0
PLAIN: Final = Security()
T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    address: str
    namespace: str
    cluster: str
    security: Security = PLAIN

    async def connect(self) -> Client:
        """Raises `Refused` when nobody answers there."""
        if not self.cluster:
            raise UsageError("--cluster-name: which cluster? Give the option or set CLUSTER_NAME")
        try:
            connection = Client.connect(
                self.address,
                namespace=self.namespace,
                data_converter=self.security.data_converter(),
                tls=self.security.tls_config(),
                api_key=self.security.read_api_key(),
            )
            return await asyncio.wait_for(connection, SECONDS)
        except BadInput as invalid:
            raise UsageError(invalid.message) from invalid
        except TimeoutError:
            raise UsageError(self._address_error(f"no answer within {SECONDS:g} s")) from None
        except (RuntimeError, ValueError) as error:
            raise UsageError(self._address_error(why_not(str(error)))) from error

    def decrypt_events(self, events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
        """Events of a history, in the clear. Raises `Refused` for what these keys do not open."""
        if self.security.payload_keys:
            try:
                decrypted = codec_of(self.security.payload_keys).decrypt
                for event in events:
                    decrypt_all(event, decrypted)
            except BadInput as invalid:
                raise UsageError(invalid.message) from invalid
            except ValueError as invalid:
                raise UsageError(f"a history is {invalid}") from invalid
        return events

    def _address_error(self, why: str) -> str:
        return f"--temporal-address: no Temporal at {self.address} (or TEMPORAL_ADDRESS): {why}"


def _temporal_option(flag: str, variable: str, help_text: str) -> Any:
    return typer.Option(flag, envvar=variable, help=help_text)


_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "address": (
        Annotated[str, _temporal_option("--temporal-address", "TEMPORAL_ADDRESS", "host:port of Temporal.")],
        "127.0.0.1:7233",
    ),
    "namespace": (
        Annotated[str, _temporal_option("--temporal-namespace", "TEMPORAL_NAMESPACE", "One per cluster.")],
        "default",
    ),
    "cluster": (Annotated[str, _temporal_option("--cluster-name", "CLUSTER_NAME", "As the worker was told.")], ""),
    "tls": (Annotated[bool, _temporal_option("--temporal-tls", "TEMPORAL_TLS", "Connect with TLS.")], False),
    "api_key": (
        Annotated[
            str, _temporal_option("--temporal-api-key", "TEMPORAL_API_KEY", "Better in the environment; with TLS.")
        ],
        "",
    ),
    "api_key_path": (
        Annotated[
            str, _temporal_option("--temporal-api-key-path", "TEMPORAL_API_KEY_PATH", "File: the API key; with TLS.")
        ],
        "",
    ),
    "ca": (
        Annotated[
            str, _temporal_option("--temporal-ca", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "File: who signs the server.")
        ],
        "",
    ),
    "cert": (
        Annotated[
            str, _temporal_option("--temporal-cert", "TEMPORAL_TLS_CLIENT_CERT_PATH", "File: for mTLS, with the key.")
        ],
        "",
    ),
    "key": (Annotated[str, _temporal_option("--temporal-key", "TEMPORAL_TLS_CLIENT_KEY_PATH", "Its key.")], ""),
    "payload_keys": (
        Annotated[
            str, _temporal_option("--temporal-payload-keys", "TEMPORAL_PAYLOAD_KEYS_PATH", "File: what encrypts.")
        ],
        "",
    ),
    "server_name": (
        Annotated[str, _temporal_option("--temporal-server-name", "TEMPORAL_TLS_SERVER_NAME", "On its certificate.")],
        "",
    ),
}
_PREFIX: Final = "temporal__"
"""Keeps them apart from what a command calls its own."""


def with_connection(command: Callable[..., T]) -> Callable[..., T]:
    """The command as Typer sees it: where its parameter `connection` stands, there are the options for it.

    What Temporal refuses while the command asks it is told in one place, here: it raises `CommandFailed`."""

    @wraps(command)
    def run_with_connection(**arguments: Any) -> T:
        temporal_options = {name: arguments.pop(_PREFIX + name) for name in _OPTIONS}
        address, namespace, cluster = (
            temporal_options.pop("address"),
            temporal_options.pop("namespace"),
            temporal_options.pop("cluster"),
        )
        try:
            return command(
                connection=Connection(address, namespace, cluster, Security(**temporal_options)), **arguments
            )
        except RPCError as error:
            raise CommandFailed(format_rpc_error(error, namespace=namespace, address=address)) from error

    signature = inspect.signature(command, eval_str=True)
    own = [one for name, one in signature.parameters.items() if name != "connection"]
    options = [
        inspect.Parameter(_PREFIX + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *options)]
    run_with_connection.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run_with_connection.__annotations__ = {one.name: one.annotation for one in parameters} | {
        "return": signature.return_annotation
    }
    return run_with_connection
