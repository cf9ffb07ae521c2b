"""A NodePool with drifted nodes as a rollout observes it: permits remove nodes, and new nodes appear."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tenure.apis.durations import parse_duration
from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.rollout import (
    ApproveRollout,
    GateResult,
    HealthGate,
    Image,
    ObservedRollout,
    RejectRollout,
    RolloutDecision,
    RolloutEvent,
    RolloutState,
    RolloutTarget,
)
from tenure.policy.rollout.decision import evaluate_rollout
from tenure.policy.rollout.plan import approve, record_gate_results, record_grants, reject, rejection_reason
from tests.unit.policy.builders import NOW

GOOD = RolloutTarget(
    pool="p1", requirements="r1", node_class="default", class_hash="c1", images=(Image(id="ami-good"),)
)
BAD = GOOD.model_copy(update={"images": (Image(id="ami-bad"),)})
WAVES = {"waves": [{"nodes": "1", "soak": "10m"}, {"nodes": "20%", "soak": "30m"}, {}]}
TARGETS = {"good": GOOD, "bad": BAD, "newer": GOOD.model_copy(update={"images": (Image(id="ami-newer"),)})}
GATE_RESULTS = {
    "passes": GateResult(outcome="passed", value=0),
    "fails": GateResult(outcome="failed", value=3, why="errors: 3 is not below 0.01"),
    "does_not_respond": GateResult(outcome="unknown", why="no response within 10s"),
}
MAX_EVALUATIONS = 100
"""Evaluations at one time; more are an endless loop."""


@dataclass
class FakeNodePool:
    """A NodePool under rollout rules. `evaluate` applies one decision, `wait` advances the time."""

    rules: dict[str, Any] | None
    nodes: int = 10
    now: datetime = NOW
    target: RolloutTarget | None = GOOD
    state: RolloutState = field(default_factory=RolloutState)
    budget: int = 1000
    """Maximum number of nodes that terminate at the same time."""
    replaced: bool = True
    """Terminated nodes are replaced by new ones."""
    healthy: bool = True
    """Whether new nodes are Ready."""
    failed_starts: int = 0
    pods: tuple[int, int] = (0, 0)
    prometheus: dict[str, GateResult] = field(default_factory=dict)
    """Results by name of the gate; by default gates pass."""
    gate_queries: list[tuple[datetime, str]] = field(default_factory=list)
    old: dict[str, RolloutTarget] = field(default_factory=dict)
    new: int = 0
    departing: set[str] = field(default_factory=set)
    terminated: int = 0
    events: list[RolloutEvent] = field(default_factory=list)
    last: RolloutDecision | None = None

    def __post_init__(self) -> None:
        """Evaluate once with all nodes on the current target."""
        self.new = self.nodes
        self.evaluate()

    def set_target(self, target: RolloutTarget) -> "FakeNodePool":
        """Change the target, so that nodes with another target drift."""
        assert self.target is not None
        first = len(self.old) + self.terminated
        self.old |= {f"n{first + number}": self.target for number in range(self.new)}
        self.target = target
        self.new = sum(one == target for one in self.old.values())
        self.old = {uid: one for uid, one in self.old.items() if one != target}
        self.departing &= self.old.keys()
        return self

    def observe(self, **more: Any) -> ObservedRollout:
        ready = {"pods": self.pods[0], "pods_ready": self.pods[1]}
        return ObservedRollout.model_validate(
            {
                "rules": None if self.rules is None else RolloutRules.model_validate(self.rules),
                "target": self.target,
                "drifted": tuple(self.old),
                "departing": tuple(self.departing),
                "updated_nodes": self.new,
                "ready": self.new if self.healthy else 0,
                "failed_starts": self.failed_starts,
                "is_requested": bool(self.old),
                **ready,
                **more,
            }
        )

    def evaluate(self, **more: Any) -> RolloutDecision:
        """Evaluate once, and query Prometheus gates until none is due."""
        for _ in range(MAX_EVALUATIONS):
            found = evaluate_rollout("web", self.state, self.observe(**more), self.now)
            self.state, self.last = found.state, found
            self.events += found.events
            if not found.gates_to_query:
                return found
            self.state = record_gate_results(self.state, tuple(self._query_gate(gate) for gate in found.gates_to_query))
        raise AssertionError(f"endless gate queries: {found}")

    def _query_gate(self, gate: HealthGate) -> GateResult:
        self.gate_queries.append((self.now, gate.name))
        result = self.prometheus.get(gate.name, GateResult(outcome="passed", value=0))
        return result.model_copy(update={"gate": gate.id, "at": self.now})

    def grant(self, most: int = 1000) -> int:
        """Grant permits within the headroom. Returns their number."""
        headroom = self.evaluate().headroom
        free = [uid for uid in self.old if uid not in self.departing]
        chosen = free[: min(most, self.budget - len(self.departing), len(free) if headroom is None else headroom)]
        self.departing |= {*chosen}
        self.state = record_grants(self.state, tuple(chosen), self.now)
        return len(chosen)

    def arrive(self) -> None:
        """Terminate departing nodes, which new nodes replace."""
        self.new += len(self.departing) if self.replaced else 0
        self.terminated += len(self.departing)
        self.old = {uid: one for uid, one in self.old.items() if uid not in self.departing}
        self.departing.clear()

    def step(self) -> int:
        """Grant permits and terminate these nodes. Returns their number."""
        count = self.grant()
        self.arrive()
        self.evaluate()
        return count

    def wait(self, **span: float) -> RolloutDecision:
        """Evaluate at every requested time and at the end."""
        end = self.now + timedelta(**span)
        found = self.evaluate()
        while found.next_check_at is not None and found.next_check_at < end:
            assert found.next_check_at > self.now, f"endless immediate checks: {found}"
            self.now = found.next_check_at
            found = self.evaluate()
        self.now = end
        return self.evaluate()

    def play(self, script: str) -> None:
        """Steps and assertions in turn, each an entry of `_STEPS`, such as `step 1; wait 10m; headroom 7`."""
        for line in script.split("; "):
            name, _, argument = line.partition(" ")
            assert _STEPS[name](self, argument) is not False, f"{line!r} of {script!r}: {self.last}"

    def explains(self, text: str) -> bool:
        return text in self.evaluate().why

    def event_reasons(self) -> list[str]:
        return [one.reason for one in self.events]

    @property
    def plan(self) -> str:
        """The plan that a person can approve or reject now."""
        return self.state.halted.plan if self.state.halted else self.state.plan.id if self.state.plan else ""

    def approve(self, by: str = "ann", plan: str = "") -> str:
        request = ApproveRollout(plan=plan or self.plan, by=by)
        rejection = rejection_reason(self.state, request, self.now)
        self.state = self.state if rejection else approve(self.state, request, self.now)
        return rejection

    def reject(self, by: str = "ann", plan: str = "", *, roll_back: bool = False) -> str:
        request = RejectRollout(plan=plan or self.plan, by=by, reason="no", roll_back=roll_back)
        rejection = rejection_reason(self.state, request, self.now)
        self.state = self.state if rejection else reject(self.state, request, self.now)
        return rejection


def _wait(pool: FakeNodePool, span: str) -> None:
    pool.wait(seconds=(parse_duration(span) or timedelta()).total_seconds())


_STEPS: dict[str, Callable[[FakeNodePool, str], object]] = {
    "step": lambda pool, count: str(pool.step()) == count or not count,
    "grant": lambda pool, count: pool.grant(int(count)) == int(count),
    "arrive": lambda pool, _: pool.arrive(),
    "wait": _wait,
    "unhealthy": lambda pool, _: setattr(pool, "healthy", False),
    "healthy": lambda pool, _: setattr(pool, "healthy", True),
    "failed_starts": lambda pool, count: setattr(pool, "failed_starts", int(count)),
    "gate": lambda pool, result: pool.prometheus.update({"errors": GATE_RESULTS[result]}),
    "evaluate": lambda pool, _: pool.evaluate() and None,
    "target": lambda pool, target: pool.set_target(TARGETS[target]) and None,
    "approve": lambda pool, by: pool.approve(by or "ann") == "",
    "reject": lambda pool, by: pool.reject(by or "ann") == "",
    "headroom": lambda pool, count: str(pool.evaluate().headroom) == count,
    "overdue": lambda pool, expected: str(pool.evaluate().overdue) == expected,
    "halted": lambda pool, expected: str(pool.state.halted is not None) == expected,
    "finished": lambda pool, _: pool.state.finished,
    "explains": lambda pool, text: pool.explains(text.replace("PLAN", pool.plan)),
}


def drifted(rules: dict[str, Any] | None = None, *, nodes: int = 10, **more: Any) -> FakeNodePool:
    """A NodePool that changes from target GOOD to BAD."""
    return FakeNodePool(WAVES if rules is None else rules, nodes, **more).set_target(BAD)
