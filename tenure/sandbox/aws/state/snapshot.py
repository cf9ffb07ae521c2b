"""Keeps the stand-in's state between two runs: our worlds and moto's backends, in one file that only this program
reads.
"""

from __future__ import annotations

import copyreg
import pickle
import threading
from pathlib import Path
from typing import Any

from moto.ec2.models import ec2_backends
from moto.events.models import events_backends
from moto.iam.models import iam_backends
from moto.sqs.models import sqs_backends
from moto.ssm.models import ssm_backends

from tenure.sandbox.aws.ec2.state import World
from tenure.sandbox.aws.stand_in import StandIn

FILE = "aws.pickle"
# Live machinery of a world, made anew at every start.
NOT_KEPT = frozenset({"settings", "clock", "lock", "moved", "network", "listeners"})
BACKENDS: dict[str, Any] = {"ec2": ec2_backends, "events": events_backends, "iam": iam_backends, "sqs": sqs_backends}


def save(standin: StandIn, folder: Path) -> None:
    """Write the state, whole or not at all."""
    _teach_pickle()
    account = standin.settings.account
    worlds = {}
    for region, world in standin.worlds().items():
        with world.lock:
            worlds[region] = _kept(world)
    state = {
        "now": standin.clock.now(),
        "worlds": worlds,
        "parameters": dict(_parameters(standin).items()),
        "moto": {name: dict(backends[account].items()) for name, backends in BACKENDS.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{FILE}.new"
    fresh.write_bytes(pickle.dumps(state))
    fresh.replace(folder / FILE)


def load(standin: StandIn, folder: Path) -> bool:
    """Bring the state back, if there is one. The clock goes on from where it stood."""
    file = folder / FILE
    if not file.exists():
        return False
    _teach_pickle()
    state = pickle.loads(file.read_bytes())
    account = standin.settings.account
    for name, regions in state["moto"].items():
        for region, backend in regions.items():
            BACKENDS[name][account][region] = backend
    _parameters(standin).update(state["parameters"])
    for region, kept in state["worlds"].items():
        _restore(standin.world(region), kept)
    standin.clock.resume_at(state["now"])
    return True


def _parameters(standin: StandIn) -> Any:
    """SSM's backend itself cannot be pickled, its parameters can."""
    return ssm_backends[standin.settings.account][standin.settings.region]._parameters


def _kept(world: World) -> dict[str, Any]:
    kept = {name: value for name, value in vars(world).items() if name not in NOT_KEPT}
    kept["addresses"] = world.network.books()
    return kept


def _restore(world: World, kept: dict[str, Any]) -> None:
    addresses = kept.pop("addresses")
    vars(world).update(kept)
    for subnet_id, stored in addresses.items():
        world.network.book(subnet_id).restore(*stored)


def _teach_pickle() -> None:
    """Locks inside moto's objects are pickled as fresh ones."""
    copyreg.pickle(threading.Condition, lambda _: (threading.Condition, ()))
    copyreg.pickle(type(threading.Lock()), lambda _: (threading.Lock, ()))
    copyreg.pickle(type(threading.RLock()), lambda _: (threading.RLock, ()))
