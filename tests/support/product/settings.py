"""Settings of the worker that shared tests use."""

GRACE = 60
"""NOT_READY_GRACE in seconds: several times as long as the NotReady intervals that scenarios cause and observe."""
DEADLINES = {
    "LAUNCH_TIMEOUT": "60s",
    "REGISTRATION_TIMEOUT": "90s",
    "INITIALIZATION_TIMEOUT": "60s",
    "NOT_READY_GRACE": f"{GRACE}s",
}
"""Phase deadlines that a scenario can wait for, with time for the nodes of several scenarios to start at once."""
GATES = "StaticCapacity=true,NodeOverlay=true"
HOOKS = {"HOOK_LOCAL_ADDRESSES": "true"}
"""For services of hooks that tests run on this machine."""
SHARED = {**DEADLINES, **HOOKS, "INTERRUPTION_QUEUE": "demo", "FEATURE_GATES": GATES}
KILLED = {**SHARED, "INITIALIZATION_TIMEOUT": "75s"}
"""For runs with --kill-seed: a restart of the worker is part of the time."""
