"""What LifecyclePolicies may say of AWS's events: rows of `test_accept_lifecyclepolicy.py`."""

from typing import Any, Final

from tests.support.apis.crd_rows import Row, accepts, rejects

WINDOW: Final = {"schedule": "0 2 * * 0", "duration": "2h", "timeZone": "Europe/Berlin"}
WORKLOAD: Final = {"matchLabels": {"example.com/state": "kept"}, "action": "waitForApproval"}
URGENT: Final = ("drain", "terminate", "ignore")
TIMED: Final = ("drain", "terminate", "notify", "ignore", "window", "waitForApproval")
ALLOWED: Final = {
    "spotInterruption": URGENT,
    "capacityReservationInterruption": URGENT,
    "rebalanceRecommendation": TIMED,
    "scheduledChange": (*TIMED, "deferUntilEventStart", "stopStart"),
    "instanceStopping": (*URGENT, "notify"),
    "instanceTerminating": URGENT,
    "instanceStatus": TIMED,
    "systemStatus": TIMED,
}
NEEDS: Final[dict[str, Any]] = {"window": {"windows": [WINDOW]}}
OF_TIME: Final = {"lead": "1h", "windows": [WINDOW], "deadline": "24h", "fallback": "notify", "voluntary": True}
TAKE_TIME: Final = [kind for kind, actions in ALLOWED.items() if "window" in actions]
WAITS: Final = ("deferUntilEventStart", "window", "waitForApproval")
RESTARTABLE: Final = ("scheduledChange", "instanceStopping")


def _of(kind: str, **fields: Any) -> Any:
    return {kind: fields}


ROWS: tuple[Row, ...] = (
    accepts("nothing of any event", interruption={}),
    *(
        accepts(
            f"{kind}: {action}", interruption=_of(kind, action=action, doNotDisrupt="override", **NEEDS.get(action, {}))
        )
        for kind, actions in ALLOWED.items()
        for action in actions
    ),
    *(
        rejects(f"{kind}: {action}", "Unsupported value", interruption=_of(kind, action=action))
        for kind, actions in ALLOWED.items()
        for action in ("pray", "notify", "deferUntilEventStart", "window", "stopStart")
        if action not in actions
    ),
    *(
        rejects(
            f"{kind}: honour at once",
            "nothing holds up action terminate",
            interruption=_of(kind, action="terminate", doNotDisrupt="honour"),
        )
        for kind in ALLOWED
    ),
    rejects("an unknown honour", "Unsupported value", interruption=_of("spotInterruption", doNotDisrupt="perhaps")),
    *(accepts(f"{kind}: what another policy needs", interruption=_of(kind, **OF_TIME)) for kind in TAKE_TIME),
    *(
        rejects(f"{kind}: {field}", "unknown field", interruption=_of(kind, **{field: value}))
        for kind in ALLOWED
        if kind not in TAKE_TIME
        for field, value in OF_TIME.items()
    ),
    *(
        row
        for kind in TAKE_TIME
        for row in (
            rejects(f"{kind}: a window at no time", "needs windows", interruption=_of(kind, action="window")),
            rejects(
                f"{kind}: a deadline for a drain",
                "deadline is for action waitForApproval",
                interruption=_of(kind, action="drain", deadline="1h"),
            ),
            rejects(
                f"{kind}: a fallback of a drain",
                "fallback is for the actions",
                interruption=_of(kind, action="drain", fallback="notify"),
            ),
            rejects(f"{kind}: an unknown fallback", "Unsupported value", interruption=_of(kind, fallback="perhaps")),
            rejects(f"{kind}: a lead in days", "should match", interruption=_of(kind, lead="1d")),
            rejects(f"{kind}: a deadline in days", "should match", interruption=_of(kind, deadline="1d")),
            rejects(f"{kind}: no window", "at least 1", interruption=_of(kind, windows=[])),
            rejects(f"{kind}: 21 windows", "at most 20", interruption=_of(kind, windows=[WINDOW] * 21)),
        )
    ),
    *(
        accepts(
            f"{kind}: {action} under budget, with a lead",
            interruption=_of(kind, action=action, lead="1h", voluntary=True, **NEEDS.get(action, {})),
        )
        for kind in TAKE_TIME
        for action in ("drain", *WAITS)
        if action in ALLOWED[kind]
    ),
    *(
        row
        for kind in TAKE_TIME
        for action in ALLOWED[kind]
        if action not in ("drain", *WAITS)
        for row in (
            accepts(f"{kind}: {action} under no budget", interruption=_of(kind, action=action, voluntary=False)),
            rejects(
                f"{kind}: {action} under budget",
                "voluntary is for drains",
                interruption=_of(kind, action=action, voluntary=True),
            ),
            rejects(f"{kind}: {action} with a lead", "lead is for", interruption=_of(kind, action=action, lead="1h")),
        )
    ),
    *(
        rejects(
            f"{kind}: {action} in windows",
            "windows is for",
            interruption=_of(kind, action=action, windows=[WINDOW]),
        )
        for kind in TAKE_TIME
        for action in ALLOWED[kind]
        if action not in ("window", "stopStart")
    ),
    *(
        rejects(f"{kind}: a drain with a lead, {name}", "lead is for", interruption=_of(kind, action="drain", **fields))
        for kind in TAKE_TIME
        for name, fields in (("at once", {"lead": "1h"}), ("of no budget", {"lead": "1h", "voluntary": False}))
    ),
    accepts(
        "stopped and started in windows, with a lead",
        interruption=_of("scheduledChange", action="stopStart", windows=[WINDOW], lead="1h"),
    ),
    rejects(
        "stopped and started under budget",
        "stopStart asks no budget: write action drain",
        interruption=_of("scheduledChange", action="stopStart", windows=[WINDOW], voluntary=True),
    ),
    rejects(
        "workloads that wait for a person in windows",
        "windows is for action window",
        interruption={"workloads": [WORKLOAD | {"windows": [WINDOW]}]},
    ),
    *(
        row
        for kind in RESTARTABLE
        for row in (
            accepts(f"{kind}: away for a while", interruption=_of(kind, action="ignore", away="20m")),
            rejects(f"{kind}: away for days", "should match", interruption=_of(kind, action="ignore", away="1d")),
            rejects(f"{kind}: drained and away", "away is for", interruption=_of(kind, action="drain", away="20m")),
        )
    ),
    *(
        rejects(f"{kind}: away", "unknown field", interruption=_of(kind, action="ignore", away="20m"))
        for kind in ALLOWED
        if kind not in RESTARTABLE
    ),
    *(
        rejects(
            f"a window for an event without {key}",
            f"{key}: Required",
            interruption=_of("scheduledChange", action="window", windows=[{k: WINDOW[k] for k in WINDOW if k != key}]),
        )
        for key in ("schedule", "duration")
    ),
    accepts(
        "workloads",
        interruption={
            "workloads": [
                WORKLOAD | {"lead": "1h", "deadline": "24h", "fallback": "drain"},
                WORKLOAD | {"action": "window", "windows": [WINDOW]},
                WORKLOAD | {"action": "deferUntilEventStart"},
            ]
        },
    ),
    *(
        rejects(
            f"workloads without {key}",
            f"{key}: Required",
            interruption={"workloads": [{k: WORKLOAD[k] for k in WORKLOAD if k != key}]},
        )
        for key in WORKLOAD
    ),
    rejects("workloads without labels", "at least 1", interruption={"workloads": [WORKLOAD | {"matchLabels": {}}]}),
    rejects(
        "a label that is none",
        "should match",
        interruption={"workloads": [WORKLOAD | {"matchLabels": {"example.com/state": "-"}}]},
    ),
    rejects(
        "workloads that go at once", "Unsupported value", interruption={"workloads": [WORKLOAD | {"action": "drain"}]}
    ),
    rejects("workloads in no window", "needs windows", interruption={"workloads": [WORKLOAD | {"action": "window"}]}),
    rejects("11 workloads", "at most 10", interruption={"workloads": [WORKLOAD] * 11}),
)
