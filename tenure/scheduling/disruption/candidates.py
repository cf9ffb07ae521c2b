"""For every NodeClaim of ours: by which methods its node could go, and everything that keeps it (reference 4.2).

`deciding.py` hands over the facts; what is eligible here is simulated next.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from tenure.model.disruption.planning import METHODS, DisruptionRequest, Exclusion, Leaving, Method, NodeVerdict
from tenure.model.facts import ClaimFact, NodeFact, PodFact, PoolFact
from tenure.model.instance_types import InstanceType
from tenure.scheduling.disruption import eligibility
from tenure.scheduling.disruption.cost import node_cost, price_of
from tenure.scheduling.disruption.eligibility import PodBudgets
from tenure.scheduling.nodepool_template import Refusal, Template
from tenure.scheduling.pods import is_reschedulable
from tenure.scheduling.snapshot import Facts


@dataclass(frozen=True, slots=True)
class Candidate:
    """One NodeClaim with its node and what hangs on it."""

    claim: ClaimFact
    node: NodeFact | None
    pool: PoolFact | None
    kind: InstanceType | None
    pods: tuple[PodFact, ...]
    """Those that have to go elsewhere."""
    verdict: NodeVerdict

    @property
    def name(self) -> str:
        """The node's; the claim's while there is none."""
        return self.node.name if self.node else self.claim.name

    @property
    def price(self) -> float:
        return self.verdict.price

    @property
    def cost(self) -> float:
        return self.verdict.cost

    def may(self, method: Method) -> bool:
        return method in self.verdict.eligible

    def leaving(self) -> Leaving:
        return Leaving(
            node=self.name,
            claim=self.claim.name,
            claim_uid=self.claim.uid,
            pool=self.claim.pool,
            instance_type=self.kind.name if self.kind else "",
            zone=self.verdict.zone,
            capacity_type=self.verdict.capacity_type,
            price=self.price,
            cost=self.cost,
        )


@dataclass(frozen=True)
class Survey:
    """What is needed to judge all of them."""

    facts: Facts
    templates: Mapping[str, Template | Refusal]
    request: DisruptionRequest
    expected: Mapping[str, Sequence[PodFact]]
    """Pods that wait and have a place on a node that stands, by that node; virtual ones of CapacityBuffers too."""
    virtual: frozenset[str]
    """UIDs of the latter."""
    pod_budgets: PodBudgets = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pod_budgets", PodBudgets(self.facts.pod_budgets.values()))

    def candidates(self) -> list[Candidate]:
        """Every NodeClaim of a NodePool, by name."""
        busy = {one.claim for command in self.request.under_way for one in command.candidates}
        named = frozenset(self.request.nominated)
        return [
            self._judge(claim, claim.name in busy, named)
            for _, claim in sorted(self.facts.claims.items())
            if claim.pool
        ]

    def _judge(self, claim: ClaimFact, busy: bool, nominated: frozenset[str]) -> Candidate:
        facts, now = self.facts, self.request.now
        node, pool = facts.node_of(claim), facts.pools.get(claim.pool)
        bound = tuple(facts.bound_to(node.name)) if node else ()
        expected = self.expected.get(node.name if node else claim.name, ())
        pods = tuple(one for one in bound if is_reschedulable(one, now) and not self.pod_budgets.never_lets(one))
        marks = {**claim.labels, **(node.labels if node else {})}
        kind = self._kind(claim.pool, marks)
        held = [one.name for one in expected if one.uid not in self.virtual]
        applicable = _applicable(claim, empty=not pods)
        asked: list[Callable[[], Iterator[Exclusion]]] = [
            lambda: eligibility.of_life(claim, node, busy=busy),
            lambda: iter(self.request.kept.get(claim.name, ())),
            lambda: eligibility.of_expectation(claim, node, nominated, held),
            lambda: eligibility.of_pool(claim, pool, self.templates.get(claim.pool)),
            lambda: eligibility.of_age(claim, self.request.allowances.youngest.get(claim.pool), now),
            lambda: eligibility.of_rest(claim, pool, now),
            lambda: eligibility.of_node(node, now),
            lambda: eligibility.of_pods(claim, bound, self.pod_budgets, now),
            lambda: eligibility.of_buffers([one for one in expected if one.uid in self.virtual]),
            lambda: eligibility.of_market(marks, kind, price_of(marks, kind)),
        ]
        found = [one for ask in asked for one in ask() if set(one.methods) & set(applicable)]
        kept = {method for one in found for method in one.methods}
        verdict = NodeVerdict(
            claim=claim.name,
            node=node.name if node else "",
            pool=claim.pool,
            capacity_type=marks.get(CAPACITY_TYPE, ""),
            zone=marks.get(ZONE, ""),
            price=price_of(marks, kind),
            cost=node_cost(pods),
            pods=len(pods),
            eligible=tuple(one for one in applicable if one not in kept),
            excluded=tuple(found),
        )
        # Room that a CapacityBuffer counts on has to be found elsewhere too.
        moving = (*pods, *(one for one in expected if one.uid in self.virtual))
        return Candidate(claim, node, pool, kind, moving, verdict)

    def _kind(self, pool: str, marks: Mapping[str, str]) -> InstanceType | None:
        template = self.templates.get(pool)
        if not isinstance(template, Template):
            return None
        row = template.table.rows.get(marks.get(INSTANCE_TYPE, ""))
        return None if row is None else template.table.types[row]


def _applicable(claim: ClaimFact, *, empty: bool) -> tuple[Method, ...]:
    """The methods that would concern such a node, if nothing kept it."""
    wanted = {"Empty" if empty else "Underutilized", *(("Drifted",) if claim.drifted else ())}
    return tuple(one for one in METHODS if one in wanted)


def oldest_drift(one: Candidate) -> tuple[bool, datetime, str]:
    """Empty nodes first, then those that drifted first (reference 4.8)."""
    return bool(one.pods), one.claim.drifted_at or one.claim.created, one.name
