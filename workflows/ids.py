"""Workflow IDs and task queues. Their prefix is the cluster, since clusters may share a Temporal namespace."""

from urllib.parse import quote


def nodeclaim(cluster: str, name: str, uid: str) -> str:
    """Includes the start of the UID, so that a new NodeClaim differs from a deleted one of the same name."""
    return f"{nodeclaims(cluster)}{name}/{uid[:8]}"


def nodeclaims(cluster: str) -> str:
    """The prefix of the IDs of all NodeClaim workflows."""
    return f"{cluster}/nodeclaim/"


def nodeclaim_name(workflow_id: str) -> str:
    """Empty if it is the ID of another workflow."""
    parts = workflow_id.split("/")
    return parts[2] if len(parts) == 4 and parts[1] == "nodeclaim" else ""


def page_url(ui: str, namespace: str, workflow_id: str) -> str:
    """The page of a workflow's last run. `ui`: the address of the Temporal UI; without it, the result is empty."""
    return f"{ui.rstrip('/')}/namespaces/{namespace}/workflows/{quote(workflow_id, safe='')}" if ui else ""


def provisioning(cluster: str) -> str:
    return f"{cluster}/provisioning"


def nodepool(cluster: str, name: str) -> str:
    return f"{cluster}/nodepool/{name}"


def nodeclass(cluster: str, name: str) -> str:
    return f"{cluster}/nodeclass/{name}"


def watch(cluster: str) -> str:
    return f"{cluster}/watch"


def interruption(cluster: str) -> str:
    return f"{cluster}/interruption"


def cluster(cluster: str) -> str:
    """The workflow for voluntary disruption of the whole cluster."""
    return f"{cluster}/cluster"


def disruption(cluster: str, proposal_id: str) -> str:
    """One command. A repeated proposal has the same ID, and may run once the previous command is closed."""
    return f"{disruptions(cluster)}{proposal_id}"


def disruptions(cluster: str) -> str:
    """The prefix of the IDs of all commands."""
    return f"{cluster}/disruption/"


def disruption_preview(cluster: str, number: str) -> str:
    """One query of an operator."""
    return f"{cluster}/show/{number}"


def garbage_collection(cluster: str) -> str:
    return f"{cluster}/garbage-collection"


def canary(cluster: str, build: str) -> str:
    return f"{cluster}/canary/{build}"


def task_queue(cluster: str) -> str:
    """For NodeClaim workflows, and for all their activities without a queue of their own. Every replica polls it."""
    return cluster


def coordinator_queue(cluster: str) -> str:
    """For the workflows of the cluster, its NodePools and its EC2NodeClasses, and their activities. Their worker has
    its own cache and slots, so that thousands of NodeClaims do not delay them."""
    return f"{cluster}-coordinators"


def workflow_queue(cluster: str, workflow_type: str) -> str:
    return task_queue(cluster) if workflow_type == "NodeClaim" else coordinator_queue(cluster)


def launch_queue(cluster: str) -> str:
    """CreateFleet calls wait in this queue, not in a worker's memory, for a worker with a free slot."""
    return f"{cluster}-launch"


def drain_queue(cluster: str) -> str:
    """For drains, hooks and terminations: they run long with few resources, and must not delay other activities."""
    return f"{cluster}-drain"


def worker_deployment_name(cluster: str) -> str:
    """The name of the cluster's workers in Worker Versioning."""
    return f"tenure-{cluster}"


def plan_queue(cluster: str) -> str:
    """Polled only by the process that hosts the watch, since only it has the cluster cache."""
    return f"{cluster}-plan"
