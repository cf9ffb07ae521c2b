"""What there is to see of a cluster at one moment; `stage.py` takes it, `demo_screen.py` shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from cli.lives import NodeLife
from cli.pods import PodCount


@dataclass(frozen=True)
class View:
    pods: PodCount
    lives: Sequence[NodeLife]
