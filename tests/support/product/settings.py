"""Settings of the worker that tests share."""

GRACE = 60
"""NOT_READY_GRACE in seconds: several times longer than the NotReady intervals of scenarios."""
DEADLINES = {
    "LAUNCH_TIMEOUT": "60s",
    "REGISTRATION_TIMEOUT": "90s",
    "INITIALIZATION_TIMEOUT": "60s",
    "NOT_READY_GRACE": f"{GRACE}s",
}
"""Phase deadlines that a scenario can wait for, long enough to start the nodes of several scenarios at once."""
GATES = "StaticCapacity=true,NodeOverlay=true,TerminateFirstDrift=true,NodeRepair=true,TerminateFirstRepair=true"
HOOKS = {"HOOK_LOCAL_ADDRESSES": "true"}
"""For hook services that tests run on this machine."""
SHARED = {**DEADLINES, **HOOKS, "INTERRUPTION_QUEUE": "demo", "FEATURE_GATES": GATES}
KILLED = {**SHARED, "INITIALIZATION_TIMEOUT": "75s"}
"""For runs with --kill-seed, in which the phase includes a worker restart."""
