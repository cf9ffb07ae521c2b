"""PodDisruptionBudgets as the Eviction API checks them."""

from typing import Final

from tenure.apis.labels import DISRUPTED_TAINT_KEY, NO_SCHEDULE
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.facts import NodeClaimFact, PodDisruptionBudgetFact, PodFact, Taint
from tenure.scheduling.taints import first_untolerated

_DISRUPTED_TAINT: Final = Taint(key=DISRUPTED_TAINT_KEY, effect=NO_SCHEDULE)


class PodDisruptionBudgets(PodBudgetIndex):
    def never_allows_eviction(self, pod: PodFact) -> bool:
        """Whether the Eviction API refuses the pod until its budgets change: one of them is `never` (reference 2.2), or
        several select it."""
        found = self._checked_budgets(pod)
        return len(found) > 1 or any(one.never for one in found)

    def needs_all_pods(self, pod: PodFact) -> bool:
        """Whether a budget allows no eviction until the workload is scaled up, even if all pods are Ready."""
        return any(one.needs_all for one in self._checked_budgets(pod))

    def hold_on_node(self, pod: PodFact, nodeclaim: NodeClaimFact | None) -> bool:
        """Whether the drain of its node waits for a change of the pod's budgets or of its workload's scale.

        With a terminationGracePeriod, the scale does not count, as in voluntary disruption: the pod leaves in time, and
        its new node can be ready before.
        """
        has_time_limit = nodeclaim is not None and bool(nodeclaim.termination_grace_period)
        return self.never_allows_eviction(pod) or (not has_time_limit and self.needs_all_pods(pod))

    def rejection_reason(self, pod: PodFact) -> str:
        """Why this pod cannot be evicted now; empty if it can be evicted, or need not be (reference 4.2)."""
        found = self.selecting_budgets(pod)
        if not found or not _is_evicted(pod):
            return ""
        subject = f"pod {pod.namespace}/{pod.name}"
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            return f"{subject} is selected by {len(found)} PodDisruptionBudgets ({names}), so it cannot be evicted"
        for one in found:
            if one.rejects_eviction(ready=pod.ready is not False):
                return f"{subject}: PodDisruptionBudget {one.key} allows no disruption now"
        return ""

    def _checked_budgets(self, pod: PodFact) -> tuple[PodDisruptionBudgetFact, ...]:
        """The budgets that the Eviction API checks in a drain. It checks none for a pod that terminates or has not
        started, and not a single one with AlwaysAllow for a pod that is not Ready."""
        found = self.selecting_budgets(pod)
        if not found or pod.phase == "Pending" or not _is_evicted(pod):
            return ()
        return () if len(found) == 1 and found[0].always_allow_unhealthy and pod.ready is False else found


def _is_evicted(pod: PodFact) -> bool:
    """False for static pods, pods that tolerate the disruption taint, and pods that have finished or terminate."""
    if pod.mirror or pod.is_finished or pod.deleting:
        return False
    return first_untolerated(pod.tolerations, (_DISRUPTED_TAINT,)) is not None
