"""Workflow ids and task queues: one Temporal namespace may hold several clusters."""


def nodeclaim(cluster: str, name: str, uid: str) -> str:
    """The UID's first characters keep a new claim apart from a run of the same name that is just closing."""
    return f"{nodeclaims(cluster)}{name}/{uid[:8]}"


def nodeclaims(cluster: str) -> str:
    """The prefix of all of them."""
    return f"{cluster}/nodeclaim/"


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
    """Voluntary disruption of the whole cluster."""
    return f"{cluster}/cluster"


def disruption(cluster: str, proposal_id: str) -> str:
    """One command. A repeated proposal has the same ID, and may run once the previous command is closed."""
    return f"{cluster}/disruption/{proposal_id}"


def disruption_preview(cluster: str, number: str) -> str:
    """One question of a person."""
    return f"{cluster}/show/{number}"


def garbage_collection(cluster: str, task: str) -> str:
    """A Schedule; its runs carry the moment of their start behind it."""
    return f"{cluster}/upkeep/{task}"


def task_queue(cluster: str) -> str:
    """Workflows and activities of every replica."""
    return cluster


def launch_queue(cluster: str) -> str:
    """Calls of CreateFleet wait here for a worker with a free slot, in Temporal rather than in a worker's memory."""
    return f"{cluster}-launch"


def drain_queue(cluster: str) -> str:
    """Drains, hooks and terminations: they take long and little, and nothing else waits behind them."""
    return f"{cluster}-drain"


def worker_deployment_name(cluster: str) -> str:
    """Worker Versioning knows the cluster's workers by this name."""
    return f"tenure-{cluster}"


def plan_queue(cluster: str) -> str:
    """Polled only by the process that hosts the watch, since only it holds the cluster's state."""
    return f"{cluster}-plan"
