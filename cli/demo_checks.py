"""What has to be true for the demo to have shown what it says it shows. Every broken rule is one line."""

from dataclasses import dataclass, field


@dataclass
class Facts:
    """Filled in while the demo runs; what was never filled in counts as not shown."""

    asked: int = 0
    """Pods."""
    ran: int = 0
    """Most pods that ran at one time."""
    nodes: int = 0
    """Lives that ended with a story told to its end."""
    joined: int = 0
    """Of these, the ones that came to Ready."""
    launched: int = 0
    terminated: int = 0
    left: dict[str, list[str]] = field(default_factory=dict)
    """Kind to the names of what is still there."""
    failed: list[str] = field(default_factory=list)
    """Workflows that did not end as completed, and calls that IAM refused."""
    worker_exit: int | None = None


def broken(facts: Facts, *, kept: bool = False) -> list[str]:
    """Empty when all is as it should be. `kept`: the worker, the pool and its class are meant to be there."""
    lines = []
    if not facts.asked or facts.ran != facts.asked:
        lines.append(f"pods: {facts.ran} of {facts.asked} were Running at once")
    if not facts.nodes or facts.joined != facts.nodes:
        lines.append(f"nodes: {facts.joined} of {facts.nodes} lives came to Ready")
    if not facts.launched or facts.launched != facts.terminated:
        lines.append(f"instances: {facts.launched} launched, {facts.terminated} terminated")
    if facts.launched < facts.nodes:
        lines.append(f"instances: {facts.launched} launched for {facts.nodes} nodes")
    lines += [f"left over: {kind}: {', '.join(names)}" for kind, names in sorted(facts.left.items()) if names]
    lines += [f"went wrong: {line}" for line in facts.failed]
    if not kept and facts.worker_exit != 0:
        lines.append(f"worker: ended with {facts.worker_exit}, not with 0")
    return lines
