"""Which LifecyclePolicies the API server takes, field by field, and what it says to the others."""

import pytest

from tests.adapters.apis.hook_rows import ROWS as HOOKS
from tests.adapters.apis.interruption_rows import ROWS as INTERRUPTIONS
from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, LIFECYCLEPOLICY, Row, accepts, rejects

SELECTORS = (
    accepts("the smallest policy"),
    rejects("a policy without spec", "spec: Required", spec=ABSENT),
    rejects("an unknown field", "unknown field", colour="blue"),
    accepts("NodePools by name", nodePoolSelector={"names": ["gpu"]}),
    accepts("NodePools by label", nodePoolSelector={"matchLabels": {"example.com/team": "a"}}),
    rejects(
        "both",
        "write 'names' or 'matchLabels'",
        nodePoolSelector={"names": ["gpu"], "matchLabels": {"example.com/team": "a"}},
    ),
    rejects("neither", "write 'names' or 'matchLabels'", nodePoolSelector={}),
    rejects("no name", "at least 1", nodePoolSelector={"names": []}),
    rejects("an empty name", "at least 1", nodePoolSelector={"names": [""]}),
    rejects("no label", "at least 1", nodePoolSelector={"matchLabels": {}}),
)
PHASES = (
    *(
        accepts(f"{phase} that is overdue: {action}", **{phase: {"deadline": "1h30m", "whenOverdue": action}})
        for phase in ("launch", "registration", "initialization")
        for action in ("alarm", "replace", "terminate")
    ),
    *(
        rejects(f"{phase} with days", "should match", **{phase: {"deadline": "1d"}})
        for phase in ("launch", "registration", "initialization", "drain", "termination")
    ),
    rejects("an unknown action", "Unsupported value", launch={"whenOverdue": "explode"}),
    accepts("a deadline for termination", termination={"deadline": "15m"}),
    rejects("an action for termination", "unknown field", termination={"whenOverdue": "alarm"}),
    accepts("a grace", notReadyGrace="10m"),
    rejects("a grace without unit", "should match", notReadyGrace="10"),
)
DRAINS = (
    accepts("a drain that waits", drain={"deadline": "1h", "whenBlocked": "wait", "nodeNotReady": "5m"}),
    accepts("a drain that escalates", drain={"whenBlocked": "escalate", "blockedFor": "2h"}),
    accepts("a drain that gives up", drain={"whenBlocked": "giveUp", "blockedFor": "2h", "surgeSingleReplicas": True}),
    rejects("an escalation at no time", "write drain.blockedFor", drain={"whenBlocked": "escalate"}),
    rejects("another end", "Unsupported value", drain={"whenBlocked": "explode", "blockedFor": "2h"}),
)
EXPIRY = (
    accepts("expiry", expiry={"jitter": "10%", "underBudget": True}),
    rejects("a jitter of more than all", "should match", expiry={"jitter": "101%"}),
    rejects("a jitter that is a number", "should match", expiry={"jitter": "10"}),
)
BAD = {"type": "Ready", "status": "False", "toleration": "30m"}
REPAIR = (
    accepts(
        "repair",
        repair={
            "conditions": [BAD],
            "within": "2h",
            "steps": ["reboot", "replace"],
            "rebootFor": "5m",
            "drain": "graceful",
            "drainFor": "30m",
            "maxUnhealthy": "20%",
        },
    ),
    accepts("a repair that looks at nothing", repair={"conditions": []}),
    accepts("a number of nodes", repair={"maxUnhealthy": "3"}),
    *(
        rejects(f"a condition without {key}", f"{key}: Required", repair={"conditions": [_without]})
        for key in BAD
        for _without in [{name: value for name, value in BAD.items() if name != key}]
    ),
    rejects("a condition of an unknown status", "Unsupported value", repair={"conditions": [BAD | {"status": "Bad"}]}),
    rejects("51 conditions", "at most 50", repair={"conditions": [BAD] * 51}),
    rejects("no step", "at least 1", repair={"steps": []}),
    rejects("a time for reboots in days", "should match", repair={"rebootFor": "1d"}),
    rejects("an unknown step", "Unsupported value", repair={"steps": ["pray"]}),
    rejects("an unknown drain", "Unsupported value", repair={"drain": "soft"}),
    rejects("a part of the nodes that is more than all", "should match", repair={"maxUnhealthy": "120%"}),
)
WINDOW = {"schedule": "0 2 * * 6", "duration": "4h"}
FREEZE = {"start": "2026-12-20", "end": "2027-01-04T08:00"}
RATE = {"nodes": "3", "within": "24h"}
DISRUPTION = (
    accepts(
        "disruption",
        disruption={
            "minimumNodeAge": "30m",
            "windows": [WINDOW | {"timeZone": "Europe/Berlin", "reasons": ["Drifted"]}],
            "freezes": [FREEZE | {"timeZone": "Europe/Berlin", "reasons": ["Drifted", "Empty"], "why": "holidays"}],
            "rates": [RATE | {"reasons": ["Underutilized"]}],
            "perZone": {"nodes": "50%", "zonesAtOnce": 1},
            "clusterNodes": "5%",
        },
    ),
    accepts("disruption with nothing", disruption={}),
    accepts("a window by macro", disruption={"windows": [{"schedule": "@daily", "duration": "1h30m"}]}),
    accepts(
        "a freeze with offsets",
        disruption={"freezes": [{"start": "2026-12-20T18:00:00Z", "end": "2026-12-21T18:00+01:00"}]},
    ),
    accepts("one zone at a time", disruption={"perZone": {"zonesAtOnce": 1}}),
    rejects("an age in days", "should match", disruption={"minimumNodeAge": "1d"}),
    *(
        rejects(f"a window without {key}", f"{key}: Required", disruption={"windows": [_without]})
        for key in WINDOW
        for _without in [{name: value for name, value in WINDOW.items() if name != key}]
    ),
    *(
        rejects(f"a freeze without {key}", f"{key}: Required", disruption={"freezes": [_without]})
        for key in FREEZE
        for _without in [{name: value for name, value in FREEZE.items() if name != key}]
    ),
    *(
        rejects(f"a rate without {key}", f"{key}: Required", disruption={"rates": [_without]})
        for key in RATE
        for _without in [{name: value for name, value in RATE.items() if name != key}]
    ),
    rejects("a window that opens never", "should match", disruption={"windows": [WINDOW | {"schedule": "tomorrow"}]}),
    rejects("a window of days", "should match", disruption={"windows": [WINDOW | {"duration": "2d"}]}),
    rejects("a time zone without name", "at least 1", disruption={"windows": [WINDOW | {"timeZone": ""}]}),
    rejects("an unknown reason", "Unsupported value", disruption={"windows": [WINDOW | {"reasons": ["Expired"]}]}),
    rejects("no reason", "at least 1", disruption={"windows": [WINDOW | {"reasons": []}]}),
    rejects("a freeze in words", "should match", disruption={"freezes": [FREEZE | {"start": "Christmas"}]}),
    rejects("a long why", "may not be more than 200", disruption={"freezes": [FREEZE | {"why": "x" * 201}]}),
    rejects("a rate of half a node", "should match", disruption={"rates": [RATE | {"nodes": "0.5"}]}),
    rejects("a rate per day", "should match", disruption={"rates": [RATE | {"within": "day"}]}),
    rejects("nothing per zone", "write nodes", disruption={"perZone": {}}),
    rejects("too much per zone", "should match", disruption={"perZone": {"nodes": "101%"}}),
    rejects("no zone at once", "greater than or equal to 1", disruption={"perZone": {"zonesAtOnce": 0}}),
    rejects("more than the cluster", "should match", disruption={"clusterNodes": "101%"}),
)
QUERY = {"query": "sum(rate(errors[5m]))", "below": "0.01"}
ROLLOUTS = (
    accepts(
        "a roll-out",
        rollout={
            "waves": [{"nodes": "1", "soak": "10m"}, {"nodes": "20%", "soak": "30m"}, {}],
            "health": {
                "nodesReady": "100%",
                "podsReady": "90%",
                "failedStarts": 2,
                "every": "30s",
                "failingFor": "5m",
                "queries": [QUERY | {"name": "errors", "timeout": "5s"}, {"query": "up", "above": "-1.5e-3"}],
            },
            "onFailure": "rollBack",
            "approval": {"required": True, "approvers": 2, "expires": "24h", "staleAfter": "20%"},
        },
    ),
    accepts("a roll-out with nothing", rollout={}),
    rejects("a wave of half a node", "should match", rollout={"waves": [{"nodes": "0.5"}]}),
    rejects("a wave of more than all", "should match", rollout={"waves": [{"nodes": "101%"}]}),
    rejects("a wave in numbers", "must be of type string", rollout={"waves": [{"nodes": 1}]}),
    rejects("a soak in days", "should match", rollout={"waves": [{"soak": "1d"}]}),
    rejects("21 waves", "at most 20", rollout={"waves": [{"nodes": "1"}] * 21}),
    *(
        rejects(f"{key} as a number", "should match", rollout={"health": {key: "90"}})
        for key in ("nodesReady", "podsReady", "every", "failingFor")
    ),
    rejects("no failed start", "greater than or equal to 1", rollout={"health": {"failedStarts": 0}}),
    rejects("more failed starts than are known", "less than or equal to 4", rollout={"health": {"failedStarts": 5}}),
    rejects("a query of nothing", "query: Required", rollout={"health": {"queries": [{"below": "1"}]}}),
    rejects("an empty query", "at least 1", rollout={"health": {"queries": [QUERY | {"query": ""}]}}),
    rejects("a query without limit", "write below", rollout={"health": {"queries": [{"query": "up"}]}}),
    rejects("a query with both limits", "write below", rollout={"health": {"queries": [QUERY | {"above": "1"}]}}),
    rejects("a limit in words", "should match", rollout={"health": {"queries": [QUERY | {"below": "little"}]}}),
    rejects("11 queries", "at most 10", rollout={"health": {"queries": [QUERY] * 11}}),
    rejects("an unknown end", "Unsupported value", rollout={"onFailure": "pray"}),
    rejects("no approver", "greater than or equal to 1", rollout={"approval": {"required": True, "approvers": 0}}),
    rejects("a plan for days", "should match", rollout={"approval": {"expires": "2d"}}),
)
ROWS = (*SELECTORS, *PHASES, *DRAINS, *EXPIRY, *REPAIR, *DISRUPTION, *ROLLOUTS, *INTERRUPTIONS, *HOOKS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_lifecyclepolicies(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, LIFECYCLEPOLICY, row)
