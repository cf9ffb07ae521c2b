"""The policies that speak of an event are named, also where only that counts of them."""

from tenure.policy.lifecycle_policy import policy_names_by_event
from tests.unit.policy.test_lifecycle_policy import POOLS, policy

REJECTED_POLICIES = {"instanceStatus": "refused", "rebalanceRecommendation": "senseless"}


def test_the_policies_that_speak_of_a_kind_of_event_are_named_the_most_precise_first() -> None:
    drained, ignored = {"action": "drain"}, {"action": "ignore"}
    found = policy_names_by_event(
        (
            policy("all", interruption={"scheduledChange": drained, "spotInterruption": drained}),
            policy("databases", names=("cpu",), interruption={"scheduledChange": {"action": "notify"}}),
            policy("silent", names=("gpu",), drain={"deadline": "2h"}),
            policy("refused", interruption={"instanceStatus": ignored}, launch={"deadline": "soon"}),
            policy("senseless", interruption={"systemStatus": {"lead": "soon"}, "rebalanceRecommendation": ignored}),
        ),
        POOLS,
    )
    assert found == {
        "cpu": {"scheduledChange": "databases, all", "spotInterruption": "all", **REJECTED_POLICIES},
        "gpu": {"scheduledChange": "all", "spotInterruption": "all", **REJECTED_POLICIES},
    }
