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

from tenure.cli.exit_codes import Failed, Refused
from tenure.controller.temporal.connection import Security, why_not
from tenure.controller.temporal.errors import refusal
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

    async def client(self) -> Client:
        """Raises `Refused` when nobody answers there."""
        if not self.cluster:
            raise Refused("--cluster-name: which cluster? Give the option or set CLUSTER_NAME")
        try:
            connecting = Client.connect(
                self.address,
                namespace=self.namespace,
                data_converter=self.security.converter(),
                tls=self.security.config(),
                api_key=self.security.bearer(),
            )
            return await asyncio.wait_for(connecting, SECONDS)
        except BadInput as wrong:
            raise Refused(wrong.message) from wrong
        except TimeoutError:
            raise Refused(self._line(f"no answer within {SECONDS:g} s")) from None
        except (RuntimeError, ValueError) as error:
            raise Refused(self._line(why_not(str(error)))) from error

    def read(self, events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
        """Events of a history, in the clear. Raises `Refused` for what these keys do not open."""
        if self.security.payload_keys:
            try:
                decrypted = codec_of(self.security.payload_keys).decrypted
                for event in events:
                    decrypt_all(event, decrypted)
            except BadInput as wrong:
                raise Refused(wrong.message) from wrong
            except ValueError as wrong:
                raise Refused(f"a history is {wrong}") from wrong
        return events

    def _line(self, why: str) -> str:
        return f"--temporal-address: no Temporal at {self.address} (or TEMPORAL_ADDRESS): {why}"


def _option(flag: str, variable: str, said: str) -> Any:
    return typer.Option(flag, envvar=variable, help=said)


_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "address": (
        Annotated[str, _option("--temporal-address", "TEMPORAL_ADDRESS", "host:port of Temporal.")],
        "127.0.0.1:7233",
    ),
    "namespace": (
        Annotated[str, _option("--temporal-namespace", "TEMPORAL_NAMESPACE", "One per cluster.")],
        "default",
    ),
    "cluster": (Annotated[str, _option("--cluster-name", "CLUSTER_NAME", "As the worker was told.")], ""),
    "tls": (Annotated[bool, _option("--temporal-tls", "TEMPORAL_TLS", "Connect with TLS.")], False),
    "api_key": (
        Annotated[str, _option("--temporal-api-key", "TEMPORAL_API_KEY", "Better in the environment; with TLS.")],
        "",
    ),
    "api_key_path": (
        Annotated[str, _option("--temporal-api-key-path", "TEMPORAL_API_KEY_PATH", "File: the API key; with TLS.")],
        "",
    ),
    "ca": (
        Annotated[str, _option("--temporal-ca", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "File: who signs the server.")],
        "",
    ),
    "cert": (
        Annotated[str, _option("--temporal-cert", "TEMPORAL_TLS_CLIENT_CERT_PATH", "File: for mTLS, with the key.")],
        "",
    ),
    "key": (Annotated[str, _option("--temporal-key", "TEMPORAL_TLS_CLIENT_KEY_PATH", "Its key.")], ""),
    "payload_keys": (
        Annotated[str, _option("--temporal-payload-keys", "TEMPORAL_PAYLOAD_KEYS_PATH", "File: what encrypts.")],
        "",
    ),
    "server_name": (
        Annotated[str, _option("--temporal-server-name", "TEMPORAL_TLS_SERVER_NAME", "On its certificate.")],
        "",
    ),
}
_PREFIX: Final = "temporal__"
"""Keeps them apart from what a command calls its own."""


def connected(command: Callable[..., T]) -> Callable[..., T]:
    """The command as Typer sees it: where its parameter `connection` stands, there are the options for it.

    What Temporal refuses while the command asks it is told in one place, here: it raises `Failed`."""

    @wraps(command)
    def called(**said: Any) -> T:
        way = {name: said.pop(_PREFIX + name) for name in _OPTIONS}
        address, namespace, cluster = way.pop("address"), way.pop("namespace"), way.pop("cluster")
        try:
            return command(connection=Connection(address, namespace, cluster, Security(**way)), **said)
        except RPCError as error:
            raise Failed(refusal(error, namespace=namespace, address=address)) from error

    signature = inspect.signature(command, eval_str=True)
    own = [one for name, one in signature.parameters.items() if name != "connection"]
    options = [
        inspect.Parameter(_PREFIX + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *options)]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": signature.return_annotation}
    return called
