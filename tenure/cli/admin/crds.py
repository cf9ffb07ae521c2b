"""`tenure crds`: the kinds that Tenure reads and writes, printed for `kubectl` and GitOps, or applied."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
import yaml

from deploy.resources import crd_files
from tenure.cli.exit_codes import UsageError
from tenure.cli.output import print_message, print_result
from tenure.kube.client.client import KubeClient, connect
from tenure.model.errors import Fault

app = typer.Typer(add_completion=False)

Form = Annotated[
    Literal["yaml", "json", "names"], typer.Option("--output", "-o", help="What is printed; yaml is for kubectl.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Put them into the cluster instead of printing them.")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", envvar="KUBECONFIG", help="The current context's cluster.")]
MANAGER: Final = "tenure"
_APPLY: Final = "application/apply-patch+yaml"


@app.command()
def crds(apply: Apply = False, kubeconfig: Kubeconfig = "", output: Form = "yaml") -> None:
    """Print the CustomResourceDefinitions, or apply them. Objects of their kinds stay as they are."""
    files = crd_files()
    if apply:
        names = asyncio.run(apply_documents(kubeconfig, [load_document(one) for one in files]))
        print_message(
            output, f"applied {', '.join(names)}; `tenure doctor` says whether the rest is there", applied=names
        )
    elif output == "yaml":
        typer.echo("---\n".join(one.read_text() for one in files), nl=False)
    else:
        found = [load_document(one) for one in files]
        print_result(output, found, "\n".join(one["metadata"]["name"] for one in found))


def load_document(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


async def apply_documents(kubeconfig: str, documents: list[dict[str, Any]]) -> list[str]:
    """Their names. Server-side, so that what others added stays; raises `Refused` where the server says no."""
    try:
        client = await connect(kubeconfig)
    except Fault as fault:
        raise UsageError(f"crds: {fault.message}; set KUBECONFIG or give --kubeconfig") from fault
    try:
        return [await _apply(client, one) for one in documents]
    finally:
        await client.close()


async def _apply(client: KubeClient, document: dict[str, Any]) -> str:
    name: str = document["metadata"]["name"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    params = {"fieldManager": MANAGER, "force": "true"}
    try:
        await client.request("PATCH", path, params=params, body=document, content_type=_APPLY)
    except Fault as fault:
        raise UsageError(
            f"crds: {name}: {fault.message}; it takes the right to patch and create CustomResourceDefinitions"
        ) from fault
    return name
