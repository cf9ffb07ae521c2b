"""The AWS stand-in as a separate process; the shipped IAM policy limits the worker's access key."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tenure.aws.adapters import AwsAdapters, build
from tenure.aws.client.client import AwsClients
from tenure.aws.instancetype.resolver import Region
from tenure.aws.settings import AwsSettings
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tests.support.paths import ROOT

FAMILIES = frozenset({"c5", "c6g", "g5", "g5g", "inf2", "m5", "m5d", "m6g", "m6i", "p5", "t3", "trn1"})
POLICIES = sorted((ROOT / "deploy" / "iam").glob("*.json"))


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [sys.executable, "-m", "tenure.sandbox.aws", "--port", "0", *(f"--policy={one}" for one in POLICIES)]
    log = tmp_path_factory.mktemp("aws") / "stand-in.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, log.read_text()
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@pytest.fixture
def control(endpoint: str) -> Iterator[AwsControl]:
    """Each test starts with the stand-in's initial state."""
    one = AwsControl(endpoint)
    one.reset()
    yield one
    one.clear_faults()


@pytest.fixture(scope="session")
async def whole_region(endpoint: str) -> Region:
    """Instance types and prices never change, so they are read once."""
    one = adapters(endpoint)
    found = await one.offerings.region()
    one.close()
    return found


@pytest.fixture(scope="session")
def region(whole_region: Region) -> Region:
    """Some families of the region, because each test resolves all types again."""
    types = {name: info for name, info in whole_region.types.items() if name.partition(".")[0] in FAMILIES}
    return replace(whole_region, types=types)


@pytest.fixture(scope="session")
def clients(endpoint: str) -> Iterator[AwsClients]:
    """Clients have no state but their rate limits, and take some tenths of a second to create."""
    with as_key(WORKER_KEY):
        one = AwsClients(_settings(endpoint))
    yield one
    one.close()


@pytest.fixture
def cloud(endpoint: str, control: AwsControl, region: Region, clients: AwsClients) -> AwsAdapters:
    """The adapters of a newly started worker that already knows types and prices."""
    return build(_settings(endpoint), region=region, clients=clients)


@contextmanager
def as_key(key: str) -> Iterator[None]:
    """Clients that are created inside the block use this access key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield


def adapters(endpoint: str, region: Region | None = None, **settings: object) -> AwsAdapters:
    """The adapters of another worker, with empty caches."""
    with as_key(WORKER_KEY):
        return build(_settings(endpoint, **settings), region=region)


def _settings(endpoint: str, **more: object) -> AwsSettings:
    values = {"cluster_name": "demo", "region": "us-west-2", "endpoint_url": endpoint, **more}
    return AwsSettings.model_validate(values)
