"""The control API on ages: a thing was made earlier than it was, for clients that wait for things to be old."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.profiles import profile_named
from sandbox.aws.standin import StandIn

Body = dict[str, Any]


def age(standin: StandIn, body: Body) -> Any:
    """An instance or a launch template by its `id`, an instance profile by its name; older by so many `seconds`."""
    name, earlier = str(body["id"]), dt.timedelta(seconds=float(body["seconds"]))
    world = standin.home
    with world.lock:
        if name in world.instances:
            instance = world.instances[name]
            instance.launch_time -= earlier
            instance.changed()
        elif name in world.templates:
            world.templates[name].created -= earlier
        elif (profile := profile_named(standin.settings.account, name)) is not None:
            profile.create_date -= earlier
        else:
            raise LookupError(name)
    return {"ok": True}
