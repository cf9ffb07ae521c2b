"""One pass of voluntary disruption: every NodeClaim with its verdict, and commands that are good together.

Karpenter's methods in Karpenter's order (reference 4.1): empty nodes, drift, several underutilized nodes, single ones.
Karpenter ends a pass with the first command; here each command is taken into account before the next is sought.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenure.model.disruption.planning import Command, Decision, DisruptionRequest, Method, NodeVerdict
from tenure.model.facts import PodFact
from tenure.model.provisioning import Plan
from tenure.scheduling.disruption.budgets import Purse
from tenure.scheduling.disruption.candidates import Candidate, Survey
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.commands import Kind, command_of, reserve
from tenure.scheduling.disruption.consolidation import Consolidation, by_worth, totals
from tenure.scheduling.disruption.drift import Replacing
from tenure.scheduling.disruption.eligibility import is_resting
from tenure.scheduling.disruption.replacement import Replaced
from tenure.scheduling.nodepool_template import Refusal, Template
from tenure.scheduling.packing.planning_pass import Ground, Wishes
from tenure.scheduling.packing.pod_requirements import Shape


@dataclass(frozen=True)
class Situation:
    """The cluster as `tenure/scheduling/cluster_state.py` knows it, and what is planned for pods that wait."""

    ground: Ground
    wishes: Wishes
    templates: Mapping[str, Template | Refusal]
    shape: Callable[[PodFact], Shape]
    plan: Plan
    waiting: Mapping[str, PodFact]
    """By UID; virtual ones of CapacityBuffers too."""
    virtual: frozenset[str] = frozenset()


def decide(given: Situation, request: DisruptionRequest) -> Decision:
    """A pure function of its arguments."""
    survey = Survey(given.ground.facts, given.templates, request, _expected(given), given.virtual)
    return _Pass(given, request, survey.candidates()).decision()


@dataclass(slots=True)
class _Pass:
    given: Situation
    request: DisruptionRequest
    candidates: list[Candidate]
    commands: list[Command] = field(default_factory=list)
    rejected: dict[str, list[str]] = field(default_factory=dict)
    stage: Stage = field(init=False)
    purse: Purse = field(init=False)

    def __post_init__(self) -> None:
        given, facts = self.given, self.given.ground.facts
        resting = [
            one.name
            for one in self.candidates
            if is_resting(one.claim, facts.pools.get(one.claim.pool), self.request.now)
        ]
        drifted = [one.name for one in self.candidates if one.claim.drifted]
        unwilling: dict[Method, list[str]] = {"Underutilized": resting, "Drifted": drifted}
        self.stage = Stage(given.ground, given.wishes, given.shape, unwilling)
        self.stage.take(given.plan, given.waiting)
        self.stage.close(self.request.unsold)
        self.purse = Purse(self.request.allowances)
        for command in self.request.under_way:
            reserve(self.stage, command, self.candidates)

    def decision(self) -> Decision:
        if self.request.only:
            return self._only()
        settings = self.request.settings
        self._empty()
        # Drifted nodes that cannot go must not use up what the others need.
        shared = any(True for _ in self._eligible("Underutilized"))
        drift = Replacing(self.stage, self.purse, settings.most_simulations // (2 if shared else 1))
        for command in drift.commands(self._eligible("Drifted"), frozenset(self.request.first)):
            self._take(command)
        for claim, words in drift.rejected.items():
            self._reject(claim, words)
        left = settings.model_copy(update={"most_simulations": settings.most_simulations - drift.simulations})
        shrink = Consolidation(self.stage, self.purse, left, totals(self.candidates))
        several = shrink.multi(self._untouched("Underutilized"))
        if several is not None:
            self._take(several)
        for command in shrink.single(self._untouched("Underutilized"), self.request.first):
            self._take(command)
        for claim, said in shrink.rejected.items():
            for words in said:
                self._reject(claim, words)
        simulations = drift.simulations + shrink.simulations
        return self._answer(simulations, (*drift.unreached, *shrink.unreached))

    def _answer(self, simulations: int, unreached: tuple[str, ...] = ()) -> Decision:
        gone = {one.claim for command in self.commands for one in command.candidates}
        return Decision(
            nodes=tuple(self._verdict(one, gone) for one in self.candidates),
            commands=tuple(without_virtual(one, self.given.virtual) for one in self.commands),
            unreached=unreached,
            simulations=simulations,
        )

    def _only(self) -> Decision:
        """Whether these would still go together."""
        reason, wanted = self.request.reason, frozenset(self.request.only)
        leaving = [one for one in self.candidates if one.claim.name in wanted and one.may(reason)]
        if len(leaving) < len(wanted):
            return self._answer(0)
        answer, simulations = self._judge(leaving, reason)
        if isinstance(answer, Refusal):
            for one in leaving:
                self._reject(one.claim.name, answer)
        else:
            self._take(command_of(reason, _kind(reason, leaving), leaving, answer))
        return self._answer(simulations)

    def _judge(self, leaving: Sequence[Candidate], reason: Method) -> tuple[Replaced | Refusal, int]:
        taken = next((one.name for one in leaving if one.name in self.stage.receivers), "")
        if taken:
            return Refusal(f"pods of nodes that go are expected on {taken}"), 0
        if reason == "Drifted" and len(leaving) == 1:
            drift = Replacing(self.stage, self.purse, self.request.settings.most_simulations)
            return drift.replaced(leaving[0]), drift.simulations
        shrink = Consolidation(self.stage, self.purse, self.request.settings, totals(self.candidates))
        return shrink.judge(leaving), shrink.simulations

    def _empty(self) -> None:
        """All of them at once, as far as budgets go (reference 4.5)."""
        ordered = sorted(self._eligible("Empty"), key=by_worth)
        leaving, refused = self.purse.allowed(ordered, "Empty", len(ordered))
        for claim, words in refused.items():
            self._reject(claim, words)
        if leaving:
            self._take(command_of("Empty", "empty", leaving, Replaced((), {}, 0.0, 0.0)))

    def _eligible(self, method: Method) -> Iterator[Candidate]:
        gone = {one.claim for command in self.commands for one in command.candidates}
        return (one for one in self.candidates if method in one.verdict.eligible and one.claim.name not in gone)

    def _untouched(self, method: Method) -> list[Candidate]:
        """Without those that pods of nodes which go are expected on: they are said to be so one by one."""
        return [one for one in self._eligible(method) if one.name not in self.stage.receivers]

    def _take(self, command: Command) -> None:
        names = set(command.nodes)
        leaving = [one for one in self.candidates if one.name in names]
        moves = {one.pod_uid: one.target for one in command.moves if one.target}
        self.stage.commit(leaving, moves, command.replacements)
        self.purse.spend(leaving)
        self.commands.append(command)

    def _reject(self, claim: str, words: str) -> None:
        said = self.rejected.setdefault(claim, [])
        if words not in said:
            said.append(words)

    def _verdict(self, one: Candidate, gone: Collection[str]) -> NodeVerdict:
        said: Sequence[str] = () if one.claim.name in gone else self.rejected.get(one.claim.name, ())
        return one.verdict.model_copy(update={"rejected": tuple(said)}) if said else one.verdict


def _kind(reason: Method, leaving: Sequence[Candidate]) -> Kind:
    if reason != "Underutilized":
        return "drift" if reason == "Drifted" else "empty"
    return "single" if len(leaving) == 1 else "multi"


def without_virtual(command: Command, virtual: Collection[str]) -> Command:
    """Pods of CapacityBuffers have their room, and are told nothing."""
    if not virtual:
        return command
    claims = [
        one.model_copy(update={"pods": tuple(uid for uid in one.pods if uid not in virtual)})
        for one in command.replacements
    ]
    moves = tuple(one for one in command.moves if one.pod_uid not in virtual)
    return command.model_copy(update={"replacements": tuple(claims), "moves": moves})


def _expected(given: Situation) -> dict[str, list[PodFact]]:
    """By home the pods that wait and have their place there."""
    found: dict[str, list[PodFact]] = {}
    for uid, name in (*given.plan.nominations.items(), *given.plan.reserved.items()):
        if uid in given.waiting:
            found.setdefault(name, []).append(given.waiting[uid])
    return found
