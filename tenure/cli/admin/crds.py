"""`tenure crds`: the CustomResourceDefinitions of Tenure, printed for `kubectl` and GitOps, or applied."""

import asyncio
from typing import Annotated, Any, Final, Literal

import typer
import yaml

from deploy.resources import crd_files
from tenure.cli.command import Kubeconfig
from tenure.cli.exit_codes import DONE, UsageError
from tenure.cli.output import Result, message_result
from tenure.kube.client.client import KubeClient, connect
from tenure.model.errors import Fault

Form = Annotated[
    Literal["yaml", "json", "names"], typer.Option("--output", "-o", help="Output format; yaml is for kubectl.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Apply them to the cluster instead of printing them.")]
MANAGER: Final = "tenure"
_APPLY: Final = "application/apply-patch+yaml"


def crds(apply: Apply = False, kubeconfig: Kubeconfig = "", output: Form = "yaml") -> int:
    """Print the CustomResourceDefinitions, or apply them. Existing objects stay as they are."""
    files = crd_files()
    if output == "yaml" and not apply:
        typer.echo("---\n".join(one.read_text() for one in files), nl=False)
        return DONE
    documents: list[dict[str, Any]] = [yaml.safe_load(one.read_text()) for one in files]
    if apply:
        names = asyncio.run(apply_documents(kubeconfig, documents))
        message = f"applied {', '.join(names)}; `tenure doctor` checks the rest of the installation"
        return message_result(message, applied=names).print(output)
    return Result(documents, [one["metadata"]["name"] for one in documents]).print(output)


async def apply_documents(kubeconfig: str, documents: list[dict[str, Any]]) -> list[str]:
    """Return their names. Server-side apply keeps the fields of other managers. Raises `UsageError`."""
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
            f"crds: {name}: {fault.message}; applying requires permission to patch and create CustomResourceDefinitions"
        ) from fault
    return name
