"""Which LifecyclePolicies the API server takes, field by field, and what it says to the others."""

import pytest

from tests.adapters.model.kinds.hook_rows import ROWS as HOOKS
from tests.adapters.model.kinds.interruption_rows import ROWS as INTERRUPTIONS
from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, LIFECYCLEPOLICY, Row, no, ok

SELECTORS = (
    ok("the smallest policy"),
    no("a policy without spec", "spec: Required", spec=ABSENT),
    no("an unknown field", "unknown field", colour="blue"),
    ok("NodePools by name", nodePoolSelector={"names": ["gpu"]}),
    ok("NodePools by label", nodePoolSelector={"matchLabels": {"example.com/team": "a"}}),
    no(
        "both",
        "write 'names' or 'matchLabels'",
        nodePoolSelector={"names": ["gpu"], "matchLabels": {"example.com/team": "a"}},
    ),
    no("neither", "write 'names' or 'matchLabels'", nodePoolSelector={}),
    no("no name", "at least 1", nodePoolSelector={"names": []}),
    no("an empty name", "at least 1", nodePoolSelector={"names": [""]}),
    no("no label", "at least 1", nodePoolSelector={"matchLabels": {}}),
)
PHASES = (
    *(
        ok(f"{phase} that is overdue: {action}", **{phase: {"deadline": "1h30m", "whenOverdue": action}})
        for phase in ("launch", "registration", "initialization")
        for action in ("alarm", "replace", "terminate")
    ),
    *(
        no(f"{phase} with days", "should match", **{phase: {"deadline": "1d"}})
        for phase in ("launch", "registration", "initialization", "drain", "termination")
    ),
    no("an unknown action", "Unsupported value", launch={"whenOverdue": "explode"}),
    ok("a deadline for termination", termination={"deadline": "15m"}),
    no("an action for termination", "unknown field", termination={"whenOverdue": "alarm"}),
    ok("a grace", notReadyGrace="10m"),
    no("a grace without unit", "should match", notReadyGrace="10"),
)
DRAINS = (
    ok("a drain that waits", drain={"deadline": "1h", "whenBlocked": "wait", "nodeNotReady": "5m"}),
    ok("a drain that escalates", drain={"whenBlocked": "escalate", "blockedFor": "2h"}),
    ok("a drain that gives up", drain={"whenBlocked": "giveUp", "blockedFor": "2h", "surgeSingleReplicas": True}),
    no("an escalation at no time", "write drain.blockedFor", drain={"whenBlocked": "escalate"}),
    no("another end", "Unsupported value", drain={"whenBlocked": "explode", "blockedFor": "2h"}),
)
EXPIRY = (
    ok("expiry", expiry={"jitter": "10%", "underBudget": True}),
    no("a jitter of more than all", "should match", expiry={"jitter": "101%"}),
    no("a jitter that is a number", "should match", expiry={"jitter": "10"}),
)
BAD = {"type": "Ready", "status": "False", "toleration": "30m"}
REPAIR = (
    ok(
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
    ok("a repair that looks at nothing", repair={"conditions": []}),
    ok("a number of nodes", repair={"maxUnhealthy": "3"}),
    *(
        no(f"a condition without {key}", f"{key}: Required", repair={"conditions": [_without]})
        for key in BAD
        for _without in [{name: value for name, value in BAD.items() if name != key}]
    ),
    no("a condition of an unknown status", "Unsupported value", repair={"conditions": [BAD | {"status": "Bad"}]}),
    no("51 conditions", "at most 50", repair={"conditions": [BAD] * 51}),
    no("no step", "at least 1", repair={"steps": []}),
    no("a time for reboots in days", "should match", repair={"rebootFor": "1d"}),
    no("an unknown step", "Unsupported value", repair={"steps": ["pray"]}),
    no("an unknown drain", "Unsupported value", repair={"drain": "soft"}),
    no("a part of the nodes that is more than all", "should match", repair={"maxUnhealthy": "120%"}),
)
WINDOW = {"schedule": "0 2 * * 6", "duration": "4h"}
FREEZE = {"start": "2026-12-20", "end": "2027-01-04T08:00"}
RATE = {"nodes": "3", "within": "24h"}
DISRUPTION = (
    ok(
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
    ok("disruption with nothing", disruption={}),
    ok("a window by macro", disruption={"windows": [{"schedule": "@daily", "duration": "1h30m"}]}),
    ok(
        "a freeze with offsets",
        disruption={"freezes": [{"start": "2026-12-20T18:00:00Z", "end": "2026-12-21T18:00+01:00"}]},
    ),
    ok("one zone at a time", disruption={"perZone": {"zonesAtOnce": 1}}),
    no("an age in days", "should match", disruption={"minimumNodeAge": "1d"}),
    *(
        no(f"a window without {key}", f"{key}: Required", disruption={"windows": [_without]})
        for key in WINDOW
        for _without in [{name: value for name, value in WINDOW.items() if name != key}]
    ),
    *(
        no(f"a freeze without {key}", f"{key}: Required", disruption={"freezes": [_without]})
        for key in FREEZE
        for _without in [{name: value for name, value in FREEZE.items() if name != key}]
    ),
    *(
        no(f"a rate without {key}", f"{key}: Required", disruption={"rates": [_without]})
        for key in RATE
        for _without in [{name: value for name, value in RATE.items() if name != key}]
    ),
    no("a window that opens never", "should match", disruption={"windows": [WINDOW | {"schedule": "tomorrow"}]}),
    no("a window of days", "should match", disruption={"windows": [WINDOW | {"duration": "2d"}]}),
    no("a time zone without name", "at least 1", disruption={"windows": [WINDOW | {"timeZone": ""}]}),
    no("an unknown reason", "Unsupported value", disruption={"windows": [WINDOW | {"reasons": ["Expired"]}]}),
    no("no reason", "at least 1", disruption={"windows": [WINDOW | {"reasons": []}]}),
    no("a freeze in words", "should match", disruption={"freezes": [FREEZE | {"start": "Christmas"}]}),
    no("a long why", "may not be more than 200", disruption={"freezes": [FREEZE | {"why": "x" * 201}]}),
    no("a rate of half a node", "should match", disruption={"rates": [RATE | {"nodes": "0.5"}]}),
    no("a rate per day", "should match", disruption={"rates": [RATE | {"within": "day"}]}),
    no("nothing per zone", "write nodes", disruption={"perZone": {}}),
    no("too much per zone", "should match", disruption={"perZone": {"nodes": "101%"}}),
    no("no zone at once", "greater than or equal to 1", disruption={"perZone": {"zonesAtOnce": 0}}),
    no("more than the cluster", "should match", disruption={"clusterNodes": "101%"}),
)
QUERY = {"query": "sum(rate(errors[5m]))", "below": "0.01"}
ROLLOUTS = (
    ok(
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
    ok("a roll-out with nothing", rollout={}),
    no("a wave of half a node", "should match", rollout={"waves": [{"nodes": "0.5"}]}),
    no("a wave of more than all", "should match", rollout={"waves": [{"nodes": "101%"}]}),
    no("a wave in numbers", "must be of type string", rollout={"waves": [{"nodes": 1}]}),
    no("a soak in days", "should match", rollout={"waves": [{"soak": "1d"}]}),
    no("21 waves", "at most 20", rollout={"waves": [{"nodes": "1"}] * 21}),
    *(
        no(f"{key} as a number", "should match", rollout={"health": {key: "90"}})
        for key in ("nodesReady", "podsReady", "every", "failingFor")
    ),
    no("no failed start", "greater than or equal to 1", rollout={"health": {"failedStarts": 0}}),
    no("more failed starts than are known", "less than or equal to 4", rollout={"health": {"failedStarts": 5}}),
    no("a query of nothing", "query: Required", rollout={"health": {"queries": [{"below": "1"}]}}),
    no("an empty query", "at least 1", rollout={"health": {"queries": [QUERY | {"query": ""}]}}),
    no("a query without limit", "write below", rollout={"health": {"queries": [{"query": "up"}]}}),
    no("a query with both limits", "write below", rollout={"health": {"queries": [QUERY | {"above": "1"}]}}),
    no("a limit in words", "should match", rollout={"health": {"queries": [QUERY | {"below": "little"}]}}),
    no("11 queries", "at most 10", rollout={"health": {"queries": [QUERY] * 11}}),
    no("an unknown end", "Unsupported value", rollout={"onFailure": "pray"}),
    no("no approver", "greater than or equal to 1", rollout={"approval": {"required": True, "approvers": 0}}),
    no("a plan for days", "should match", rollout={"approval": {"expires": "2d"}}),
)
ROWS = (*SELECTORS, *PHASES, *DRAINS, *EXPIRY, *REPAIR, *DISRUPTION, *ROLLOUTS, *INTERRUPTIONS, *HOOKS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_lifecyclepolicies(row: Row, server: Server) -> None:
    await assert_row(server, LIFECYCLEPOLICY, row)
