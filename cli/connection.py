"""The way to Temporal for commands that ask about nodes: `why`, `stuck`."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.exits import Refused
from controller.temporal import why_not

SECONDS = 5.0

Address = Annotated[str, typer.Option("--temporal-address", envvar="TEMPORAL_ADDRESS", help="host:port of Temporal.")]
Namespace = Annotated[str, typer.Option("--temporal-namespace", envvar="TEMPORAL_NAMESPACE")]
ClusterName = Annotated[str, typer.Option("--cluster-name", envvar="CLUSTER_NAME", help="As the worker was told.")]


@dataclass(frozen=True)
class Connection:
    address: str
    namespace: str
    cluster: str

    async def client(self) -> Client:
        """Raises `Refused` when nobody answers there."""
        if not self.cluster:
            raise Refused("--cluster-name: which cluster? Give the option or set CLUSTER_NAME")
        try:
            connecting = Client.connect(self.address, namespace=self.namespace, data_converter=pydantic_data_converter)
            return await asyncio.wait_for(connecting, SECONDS)
        except TimeoutError:
            raise Refused(self._line(f"no answer within {SECONDS:g} s")) from None
        except (RuntimeError, ValueError) as error:
            raise Refused(self._line(why_not(str(error)))) from error

    def _line(self, why: str) -> str:
        return f"--temporal-address: no Temporal at {self.address} (or TEMPORAL_ADDRESS): {why}"
