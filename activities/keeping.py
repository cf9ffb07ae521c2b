"""What people said that keeps a node from voluntary steps, in words: do-not-disrupt (reference 4.2).

The last looks before a node goes, `commands.py` and `disruption.py`, ask the Node first and its pods second.
"""

from collections.abc import Iterable

from activities.ports import DrainPod, NodeState
from model.labels import DO_NOT_DISRUPT


def kept_by_node(node: NodeState) -> str:
    """Empty when it may go."""
    return f"Node {node.name} is annotated {DO_NOT_DISRUPT}" if node.annotations.get(DO_NOT_DISRUPT) == "true" else ""


def kept_by_pods(pods: Iterable[DrainPod]) -> str:
    """Names three of those that hold it; those on their way out do not. Empty when it may go."""
    held = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.protected and pod.deletion is None]
    return f"annotation {DO_NOT_DISRUPT} on {', '.join(held[:3])}" if held else ""
