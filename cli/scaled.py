"""A Deployment's number of pods, set as `kubectl scale` does it: for `tenure sandbox scale`, which needs no kubectl."""

from cli.exits import Refused
from kube.client import MERGE_PATCH, KubeClient, connect
from model.faults import Fault, NotFound


async def scaled(kubeconfig: str, namespace: str, deployment: str, replicas: int) -> None:
    """Raises `Refused` where there is no such Deployment, or the API server says no."""
    place = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    try:
        client = await connect(kubeconfig)
        try:
            await _scale(client, place, deployment, replicas)
        finally:
            await client.close()
    except Fault as fault:
        raise Refused(f"sandbox scale: {fault.message}; see `tenure sandbox status`") from fault


async def _scale(client: KubeClient, place: str, deployment: str, replicas: int) -> None:
    body = {"spec": {"replicas": replicas}}
    try:
        await client.request("PATCH", f"{place}/{deployment}/scale", body=body, content_type=MERGE_PATCH)
    except NotFound:
        found = await client.request("GET", place)
        known = ", ".join(one["metadata"]["name"] for one in found["items"]) or "none"
        raise Refused(f"sandbox scale {deployment}: no such Deployment in this namespace; there are {known}") from None
