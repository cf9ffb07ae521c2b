"""Which LifecyclePolicies apply to which NodePool, and their validation."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import InvalidRules, PolicyFact, PolicyValidation
from tenure.policy.lifecycle.deadlines import flatten_rules
from tenure.policy.lifecycle_policy import Resolved, policy_names_by_event, resolve_policies
from tests.unit.policy.builders import NOW

POOLS = {"cpu": {"team": "a"}, "gpu": {"team": "b", "kind": "gpu"}}


def policy(
    name: str, *, age: int = 1, names: tuple[str, ...] = (), labels: dict[str, str] | None = None, **sections: Any
) -> PolicyFact:
    """`age` is in hours."""
    return PolicyFact(
        name=name,
        created=NOW - timedelta(hours=age),
        names=names,
        match_labels=labels or {},
        rules=LifecycleRules.model_validate(sections),
    )


def resolve_all(*policies: PolicyFact) -> Resolved:
    return resolve_policies(policies, POOLS, Deadlines())


def fields_for(resolved: Resolved, pool: str) -> dict[str, Any]:
    found = resolved.rules.get(pool)
    return flatten_rules(found) if found else {}


def test_no_rules_without_policies() -> None:
    assert resolve_all().rules == {}


def test_policy_applies_to_selected_nodepools_or_to_all_without_selector() -> None:
    resolved = resolve_all(
        policy("all", notReadyGrace="1m"),
        policy("labelled", labels={"kind": "gpu"}, drain={"deadline": "2h"}),
        policy("named", names=("cpu",), launch={"deadline": "4m"}),
    )
    assert fields_for(resolved, "cpu") == {"notReadyGrace": "1m", "launch.deadline": "4m"}
    assert fields_for(resolved, "gpu") == {"notReadyGrace": "1m", "drain.deadline": "2h"}
    assert {name: one.node_pools for name, one in resolved.validations.items()} == {
        "all": ("cpu", "gpu"),
        "labelled": ("gpu",),
        "named": ("cpu",),
    }


def test_every_label_must_match() -> None:
    assert resolve_all(policy("p", labels={"kind": "gpu", "team": "a"}, notReadyGrace="1m")).rules == {}


def test_more_specific_policy_overrides_by_field() -> None:
    resolved = resolve_all(
        policy("all", age=9, registration={"deadline": "10m", "whenOverdue": "alarm"}, notReadyGrace="1m"),
        policy("labelled", age=8, labels={"kind": "gpu"}, registration={"deadline": "20m"}, notReadyGrace="2m"),
        policy("named", age=1, names=("gpu",), registration={"deadline": "30m"}),
    )
    assert fields_for(resolved, "gpu") == {
        "registration.deadline": "30m",
        "registration.whenOverdue": "alarm",
        "notReadyGrace": "2m",
    }
    assert not any(one.rejected for one in resolved.validations.values())


def test_conflict_of_equally_specific_policies_is_won_by_the_older() -> None:
    resolved = resolve_all(
        policy("young", age=1, names=("gpu",), drain={"deadline": "2h"}, notReadyGrace="3m"),
        policy("old", age=2, names=("gpu", "cpu"), drain={"deadline": "1h"}),
    )
    assert fields_for(resolved, "gpu") == {"drain.deadline": "1h", "notReadyGrace": "3m"}
    old, young = resolved.validations["old"], resolved.validations["young"]
    assert (old.rejected, old.reason, young.rejected, young.reason) == (True, "Conflict", True, "Conflict")
    for part in (
        "LifecyclePolicy young",
        "drain.deadline 2h",
        "NodePool gpu",
        "sets 1h",
        "set drain.deadline in only one",
    ):
        assert part in old.message
    for part in ("LifecyclePolicy old", "drain.deadline 1h", "NodePool gpu", "sets 2h", "old is older and wins"):
        assert part in young.message
    assert (old.node_pools, young.node_pools) == (("cpu", "gpu"), ("gpu",)), "fields without a conflict still apply"


def test_conflict_of_equally_old_policies_is_won_by_name() -> None:
    resolved = resolve_all(policy("b", notReadyGrace="2m"), policy("a", notReadyGrace="1m"))
    assert fields_for(resolved, "cpu") == {"notReadyGrace": "1m"}


def test_equal_values_in_other_notation_are_no_conflict() -> None:
    resolved = resolve_all(policy("a", drain={"deadline": "1h"}), policy("b", drain={"deadline": "60m"}))
    assert not any(one.rejected for one in resolved.validations.values())
    assert resolved.validations["b"].node_pools == ("cpu", "gpu")


def test_list_is_one_field() -> None:
    one = {"conditions": [{"type": "Ready", "status": "False", "toleration": "30m"}]}
    other: dict[str, Any] = {"conditions": []}
    resolved = resolve_all(policy("a", age=2, repair=one), policy("b", repair=other))
    assert resolved.validations["b"].reason == "Conflict" and "repair.conditions" in resolved.validations["b"].message


def test_invalid_policy_affects_no_other_and_reports_the_consequence() -> None:
    resolved = resolve_all(
        policy("broken", age=9, names=("gpu",), launch={"deadline": "0s"}, notReadyGrace="9m"),
        policy("unreadable", age=9).model_copy(update={"problem": "spec.launch.whenOverdue: 'explode'"}),
        policy("sound", notReadyGrace="1m"),
    )
    assert fields_for(resolved, "gpu") == fields_for(resolved, "cpu") == {"notReadyGrace": "1m"}
    broken = resolved.validations["broken"]
    assert (broken.rejected, broken.reason, broken.node_pools) == (True, "RuntimeValidation", ())
    assert broken.message.startswith("spec.launch.deadline: '0s': invalid duration, expected")
    assert "neither are its earlier rules" in broken.message
    assert resolved.validations["unreadable"].message.startswith("spec.launch.whenOverdue: 'explode'")
    assert resolved.validations["sound"] == PolicyValidation(node_pools=("cpu", "gpu"))


def test_unknown_nodepool_is_reported_and_the_policy_still_applies() -> None:
    resolved = resolve_all(policy("p", names=("gpu", "gone"), notReadyGrace="1m"))
    validation = resolved.validations["p"]
    assert not validation.rejected and validation.node_pools == ("gpu",)
    assert validation.reason == "NodePoolNotFound" and "NodePool gone not found" in validation.message
    assert fields_for(resolved, "gpu")


def test_launch_deadline_beyond_registration_is_reported_on_its_policy() -> None:
    resolved = resolve_all(policy("p", names=("gpu",), launch={"deadline": "20m"}), policy("q", notReadyGrace="1m"))
    assert (
        resolved.validations["p"].reason == "DeadlineCut"
        and "registration.deadline 15m" in resolved.validations["p"].message
    )
    assert not resolved.validations["q"].reason
    both = resolve_all(
        policy("p", names=("gpu",), launch={"deadline": "20m"}), policy("q", registration={"deadline": "30m"})
    )
    assert not both.validations["p"].reason


def test_fully_overridden_policy_applies_to_no_nodepool() -> None:
    resolved = resolve_all(policy("all", notReadyGrace="1m"), policy("p", names=("cpu", "gpu"), notReadyGrace="2m"))
    assert resolved.validations["all"] == PolicyValidation()


SPANS = st.sampled_from(["5m", "300s", "1h", "2h"])
POLICIES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["all", "labels", "names"]), SPANS, st.booleans()), max_size=6
)


@given(POLICIES)
def test_result_is_independent_of_order_and_each_field_is_that_of_the_best_policy(
    drawn: list[tuple[int, str, str, bool]],
) -> None:
    policies = [
        policy(
            f"p{number}",
            age=age,
            names=("gpu",) if kind == "names" else (),
            labels={"kind": "gpu"} if kind == "labels" else None,
            **({"drain": {"deadline": span}} if drains else {"notReadyGrace": span}),
        )
        for number, (age, kind, span, drains) in enumerate(drawn)
    ]
    resolved = resolve_all(*policies)
    assert resolve_all(*reversed(policies)) == resolved
    for pool in POOLS:
        for name, value in fields_for(resolved, pool).items():
            candidates = [
                one for one in policies if one.selects(pool, POOLS[pool]) and name in flatten_rules(one.rules)
            ]
            best = min(candidates, key=lambda one: (-one.specificity, one.created, one.name))
            assert flatten_rules(best.rules)[name] == value


def test_invalid_rollout_rules_block_rollouts_and_other_rules_apply() -> None:
    """If the policy were ignored, its NodePools would be rolled out without waves."""
    resolved = resolve_all(policy("p", names=("gpu",), rollout={"waves": [{"nodes": "0"}]}, notReadyGrace="9m"))
    assert fields_for(resolved, "gpu")["notReadyGrace"] == "9m"
    assert resolved.rules["gpu"].rollout is not None
    validation = resolved.validations["p"]
    assert (validation.rejected, validation.reason, validation.node_pools) == (False, "RolloutsHeld", ("gpu",))
    assert validation.message == (
        "spec.rollout.waves[0].nodes: '0' replaces no node, expected '1' or more, or remove the wave. Rollouts "
        "of its NodePools are blocked until it is valid"
    )


WINDOW = {"schedule": "0 2 * * *", "duration": "4h"}
NOT_A_ZONE = {**WINDOW, "timeZone": "Mars/Olympus"}


def test_invalid_disruption_rules_block_disruption_and_waves_apply() -> None:
    resolved = resolve_all(
        policy("p", names=("gpu",), disruption={"windows": [NOT_A_ZONE]}, rollout={"waves": [{"nodes": "1"}]}),
        policy("all", disruption={"clusterNodes": "3"}),
    )
    why = resolved.unread["gpu"].blocking_message("Empty")
    assert why.startswith(
        "LifecyclePolicy p is invalid, so voluntary disruption is blocked: spec.disruption.windows[0]"
    )
    assert "Mars/Olympus" in why and resolved.unread.keys() == {"gpu"}
    assert resolved.rules["gpu"].rollout is not None
    assert fields_for(resolved, "cpu") == {"disruption.clusterNodes": "3"}
    validation = resolved.validations["p"]
    assert (validation.rejected, validation.reason, validation.node_pools) == (True, "RuntimeValidation", ("gpu",))
    assert "no voluntary disruption of their nodes" in validation.message


def test_policy_rejected_for_another_field_still_limits_disruption() -> None:
    windows = {"windows": [WINDOW]}
    resolved = resolve_all(
        policy("p", names=("gpu",), launch={"deadline": "0s"}, disruption=windows, notReadyGrace="9m")
    )
    assert fields_for(resolved, "gpu") == {"disruption.windows": [WINDOW]}
    assert not resolved.unread
    validation = resolved.validations["p"]
    assert validation.rejected and validation.message.endswith(
        "its rules for disruption, rollouts, hooks and interruption still apply"
    )
    assert validation.node_pools == ("gpu",)


def test_unreadable_rollout_rules_block_only_drift() -> None:
    unread = InvalidRules(rollout="spec.rollout.waves: 7 cannot be read: Input should be a valid tuple")
    broken = policy("p", names=("gpu",)).model_copy(update={"problem": unread.rollout, "unread": unread})
    unreadable = resolve_all(broken).unread["gpu"]
    assert "LifecyclePolicy p is invalid" in unreadable.blocking_message("Drifted") and not unreadable.blocking_message(
        "Underutilized"
    )
    assert "no drift replacement" in resolve_all(broken).validations["p"].message


def test_more_specific_of_two_unreadable_policies_is_named() -> None:
    invalid = {"minimumNodeAge": "0s"}
    resolved = resolve_all(policy("all", age=9, disruption=invalid), policy("p", names=("gpu",), disruption=invalid))
    assert "LifecyclePolicy p " in resolved.unread["gpu"].disruption
    assert "LifecyclePolicy all " in resolved.unread["cpu"].disruption
    assert resolved.validations["all"].node_pools == ("cpu", "gpu")


# --- interruption rules ---

ATLANTIS: dict[str, Any] = {"action": "window", "windows": [NOT_A_ZONE]}
NOTIFY, IGNORE, DRAIN = {"action": "notify"}, {"action": "ignore"}, {"action": "drain"}
STATEFUL = [{"matchLabels": {"state": "kept"}, "action": "waitForApproval"}]


def test_policy_rejected_for_another_field_keeps_its_interruption_rules() -> None:
    """Otherwise each node that the rules keep would be drained or terminated at once."""
    interruption = {"scheduledChange": NOTIFY, "instanceStatus": IGNORE, "spotInterruption": {"action": "terminate"}}
    resolved = resolve_all(policy("p", names=("gpu",), registration={"deadline": "0s"}, interruption=interruption))
    assert (
        resolved.rules["gpu"].interruption == LifecycleRules.model_validate({"interruption": interruption}).interruption
    )
    assert not resolved.unread
    validation = resolved.validations["p"]
    assert validation.rejected and "interruption still apply" in validation.message
    assert validation.node_pools == ("gpu",)


@pytest.mark.parametrize(
    ("interruption", "invalid_field", "retained"),
    [
        ({"scheduledChange": ATLANTIS}, "scheduledChange.windows[0].timeZone 'Mars/Olympus'", {}),
        ({"scheduledChange": {"action": "waitForApproval", "deadline": "0s"}}, "scheduledChange.deadline: '0s'", {}),
        ({"scheduledChange": {"lead": "soon"}}, "scheduledChange.lead: ", {}),
        ({"scheduledChange": ATLANTIS, "spotInterruption": IGNORE}, "scheduledChange", {"spotInterruption": IGNORE}),
        ({"scheduledChange": ATLANTIS, "spotInterruption": {"action": "terminate"}}, "scheduledChange", {}),
        (
            {"scheduledChange": ATLANTIS, "instanceStopping": NOTIFY, "instanceTerminating": DRAIN},
            "scheduledChange",
            {},
        ),
        ({"instanceStopping": {**IGNORE, "away": "soon"}}, "instanceStopping.away: ", {}),
        ({"scheduledChange": ATLANTIS, "systemStatus": NOTIFY}, "scheduledChange", {"systemStatus": NOTIFY}),
        ({"scheduledChange": ATLANTIS, "rebalanceRecommendation": DRAIN}, "scheduledChange", {}),
        ({"scheduledChange": ATLANTIS, "ofLaterVersions": 7}, "scheduledChange", {}),
        ({"scheduledChange": ATLANTIS, "workloads": STATEFUL}, "scheduledChange", {"workloads": STATEFUL}),
    ],
)
def test_events_with_unreadable_rules_wait_if_they_can(
    interruption: dict[str, Any], invalid_field: str, retained: dict[str, Any]
) -> None:
    resolved = resolve_all(policy("p", names=("gpu",), interruption=interruption))
    why = resolved.unread["gpu"].interruption
    assert why.startswith("LifecyclePolicy p is invalid, so maintenance, recommendations and failing checks wait")
    assert f"spec.interruption.{invalid_field}" in why and "expected" in why
    assert resolved.unread["gpu"].blocking_message("Empty") == "", "voluntary disruption is not blocked"
    found = resolved.rules.get("gpu")
    assert (found.to_object()["interruption"] if found else {}) == retained
    validation = resolved.validations["p"]
    assert (validation.rejected, validation.reason, validation.node_pools) == (True, "RuntimeValidation", ("gpu",))
    assert "until interruption is valid, maintenance" in validation.message
    assert resolved.unread.keys() == {"gpu"}


def test_message_names_everything_that_is_blocked() -> None:
    interruption = {"scheduledChange": ATLANTIS}
    message = (
        resolve_all(policy("p", disruption={"windows": [NOT_A_ZONE]}, interruption=interruption))
        .validations["p"]
        .message
    )
    assert "voluntary disruption" in message and "of their nodes wait" in message


REJECTED_POLICIES = {"instanceStatus": "rejected", "rebalanceRecommendation": "invalid"}


def test_policies_of_an_event_kind_are_named_most_specific_first() -> None:
    drained, ignored = {"action": "drain"}, {"action": "ignore"}
    found = policy_names_by_event(
        resolve_all(
            policy("all", interruption={"scheduledChange": drained, "spotInterruption": drained}),
            policy("databases", names=("cpu",), interruption={"scheduledChange": {"action": "notify"}}),
            policy("silent", names=("gpu",), drain={"deadline": "2h"}),
            policy("rejected", interruption={"instanceStatus": ignored}, launch={"deadline": "soon"}),
            policy("invalid", interruption={"systemStatus": {"lead": "soon"}, "rebalanceRecommendation": ignored}),
        ).policies
    )
    assert found == {
        "cpu": {"scheduledChange": "databases, all", "spotInterruption": "all", **REJECTED_POLICIES},
        "gpu": {"scheduledChange": "all", "spotInterruption": "all", **REJECTED_POLICIES},
    }
