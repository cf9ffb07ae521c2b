"""Whether a roll-out's new nodes, their pods and the world around them are well, as spec.rollout.health asks for.

What nobody can tell is no failure, and holds all the same: no node goes, and no wave ends, until it is known again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from model.rollouts import Gate, GateAnswer, RolloutSeen, RolloutState
from policy.rollout_rules import Rules


@dataclass(frozen=True, slots=True)
class Health:
    failing: str = ""
    """What is not well, by the last that was heard; empty when all is."""
    unknown: str = ""
    """What was asked last and not answered."""
    ask: tuple[Gate, ...] = ()
    """What was not asked lately."""


def health_of(rules: Rules, state: RolloutState, seen: RolloutSeen, now: datetime) -> Health:
    """As it is now."""
    known = {one.gate: one for one in state.answers}
    said = [(gate, one) for gate in rules.gates if (one := known.get(gate.id))]
    failing = [*_of_nodes(rules, seen), *(one.why for _, one in said if one.outcome == "failed")]
    unknown = [f"{gate.name}: {one.why}" for gate, one in said if one.outcome == "unknown"]
    asked = {gate.id for gate, one in said if _is_fresh(one, rules, now)}
    return Health("; ".join(failing), "; ".join(unknown), tuple(one for one in rules.gates if one.id not in asked))


def _is_fresh(answer: GateAnswer, rules: Rules, now: datetime) -> bool:
    return answer.at is not None and now - answer.at < rules.every


def _of_nodes(rules: Rules, seen: RolloutSeen) -> Iterator[str]:
    if seen.new and seen.ready * 100 < rules.nodes_ready * seen.new:
        yield f"{seen.ready} of {seen.new} new nodes are Ready, {rules.nodes_ready}% have to be"
    if rules.pods_ready is not None and seen.pods and seen.pods_ready * 100 < rules.pods_ready * seen.pods:
        yield f"{seen.pods_ready} of {seen.pods} pods on new nodes are Ready, {rules.pods_ready}% have to be"
    if seen.failed_starts >= rules.failed_starts:
        yield f"{seen.failed_starts} new NodeClaims did not come to be nodes, {rules.failed_starts} are too many"
