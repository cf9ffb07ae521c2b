"""What the watch is told at start by `worker.py`."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from model.coordination import BatchWindow
from model.lifecycle import Deadlines
from scheduling.settings import PlanSettings

OTHERS_LEASE: Final = "karpenter-leader-election"


@dataclass(frozen=True)
class HostSettings:
    cluster: str
    task_queue: str
    """Where the workflows run that are started here."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    window: BatchWindow = field(default_factory=BatchWindow)
    planning: PlanSettings = field(default_factory=PlanSettings)
    nominate_pods: bool = True
    """Tell kube-scheduler where pods that keep company, or keep apart, are expected."""
    not_ready_grace: timedelta = timedelta(minutes=5)
    namespace: str = "tenure"
    """The worker's own, which carries a pause of the whole cluster."""
    others_lease: str = OTHERS_LEASE
    """Karpenter's leader lease; empty switches the check off."""
    gates: frozenset[str] = frozenset()
    """The feature gates that are on."""
