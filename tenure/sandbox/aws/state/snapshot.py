"""Store the state of the stand-in between runs: our environments and moto's backends, in one private file."""

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

from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.fake_aws import FakeAws

FILE = "aws.pickle"
# Runtime objects that every start recreates.
NOT_SAVED = frozenset({"settings", "clock", "lock", "moved", "network", "listeners"})
BACKENDS: dict[str, Any] = {"ec2": ec2_backends, "events": events_backends, "iam": iam_backends, "sqs": sqs_backends}


def save(fake_aws: FakeAws, folder: Path) -> None:
    """Write the state atomically."""
    _register_pickle_reducers()
    account = fake_aws.settings.account
    environments = {}
    for region, environment in fake_aws.environments().items():
        with environment.lock:
            environments[region] = _saved_state(environment)
    state = {
        "now": fake_aws.clock.now(),
        "worlds": environments,
        "parameters": dict(_ssm_parameters(fake_aws).items()),
        "moto": {name: dict(backends[account].items()) for name, backends in BACKENDS.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{FILE}.new"
    fresh.write_bytes(pickle.dumps(state))
    fresh.replace(folder / FILE)


def load(fake_aws: FakeAws, folder: Path) -> bool:
    """Restore the state, if there is one. The clock continues from its stored time."""
    file = folder / FILE
    if not file.exists():
        return False
    _register_pickle_reducers()
    state = pickle.loads(file.read_bytes())
    account = fake_aws.settings.account
    for name, regions in state["moto"].items():
        for region, backend in regions.items():
            BACKENDS[name][account][region] = backend
    _ssm_parameters(fake_aws).update(state["parameters"])
    for region, saved in state["worlds"].items():
        _restore_environment(fake_aws.environment(region), saved)
    fake_aws.clock.resume_at(state["now"])
    return True


def _ssm_parameters(fake_aws: FakeAws) -> Any:
    """moto's SSM backend cannot be pickled, but its parameters can."""
    return ssm_backends[fake_aws.settings.account][fake_aws.settings.region]._parameters


def _saved_state(environment: Environment) -> dict[str, Any]:
    state = {name: value for name, value in vars(environment).items() if name not in NOT_SAVED}
    state["addresses"] = environment.network.snapshot_addresses()
    return state


def _restore_environment(environment: Environment, saved: dict[str, Any]) -> None:
    addresses = saved.pop("addresses")
    vars(environment).update(saved)
    for subnet_id, stored in addresses.items():
        environment.network.address_pool(subnet_id).restore(*stored)


def _register_pickle_reducers() -> None:
    """Pickle locks inside moto's objects as new locks."""
    copyreg.pickle(threading.Condition, lambda _: (threading.Condition, ()))
    copyreg.pickle(type(threading.Lock()), lambda _: (threading.Lock, ()))
    copyreg.pickle(type(threading.RLock()), lambda _: (threading.RLock, ()))
