"""`tenure instance-types export`: the instance types of an EC2NodeClass, for `tenure simulate`."""

import asyncio
import json
from typing import Annotated, Literal

import typer

import tenure.aws.adapters
import tenure.kube.adapters.build
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.cli.command import WORKER_FLAGS, CommandGroup
from tenure.cli.exit_codes import UsageError
from tenure.cli.simulate.portable_types import EXPORTED
from tenure.cli.worker_settings import load_settings
from tenure.model.errors import Fault
from tenure.model.instance_types import InstanceType
from tenure.settings import Settings
from tenure.worker.settings import aws_settings

app = typer.Typer(cls=CommandGroup, add_completion=False, rich_markup_mode=None)

NodeClass = Annotated[str, typer.Option(help="EC2NodeClass (optional if there is only one).")]
Form = Annotated[Literal["json"], typer.Option("--output", "-o", help="Output format.")]


@app.callback()
def instance_types() -> None:
    """Export instance types with labels, capacity, offerings and prices."""


@app.command("export", context_settings=WORKER_FLAGS)
def export(context: typer.Context, node_class: NodeClass = "", output: Form = "json") -> None:
    """Print the instance types of a class as JSON. Settings come from the environment and flags, as for the worker."""
    settings = load_settings(context)
    try:
        types = asyncio.run(read(settings, node_class))
    except Fault as fault:
        raise UsageError(f"instance-types export: {fault.message}") from fault
    typer.echo(json.dumps({EXPORTED: [one.model_dump(mode="json") for one in types]}))


async def read(settings: Settings, name: str) -> tuple[InstanceType, ...]:
    """Raises `UsageError` for an unknown class, and `Fault` if the cluster or AWS does not respond."""
    cluster = await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    try:
        chosen = _select_nodeclass(list(await cluster.node_classes.list()), name)
    finally:
        await cluster.close()
    cloud = tenure.aws.adapters.build(aws_settings(settings))
    try:
        return tuple(await cloud.offerings.instance_types(chosen))
    finally:
        cloud.close()


def _select_nodeclass(classes: list[EC2NodeClass], name: str) -> EC2NodeClass:
    named = [one for one in classes if one.name == name] if name else classes
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted(one.name for one in classes)) or "none"
    raise UsageError(f"instance-types export: --node-class {name or 'is required'}: found {known}")
