"""NodeClaims with hash annotations of another version are updated once, after the watch signals it."""

from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import NODECLASS_HASH, NODECLASS_HASH_VERSION
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until
from tests.support.workflows.nodeclaim_workflows import start_nodeclass
from tests.unit.workflows.test_nodeclass import is_ready, signal_observed

BY_KARPENTER = {NODECLASS_HASH: "1", NODECLASS_HASH_VERSION: "v6"}


async def test_hash_annotations_of_another_version_are_updated(fake: WorkerHarness) -> None:
    fake.claims.add("a", annotations=dict(BY_KARPENTER))
    fake.claims.set_status("a", provider_id="aws:///us-west-2a/i-a")
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    resolutions_before = fake.resolver.resolve_count
    assert hash_version(fake) == "v6", "no signal mentioned it"
    await signal_observed(fake, handle, stamps="v6")
    await wait_until(lambda: hash_version(fake) == HASH_VERSION)
    await signal_observed(fake, handle)
    await fake.sleep(minutes=1)
    assert fake.resolver.resolve_count == resolutions_before + 1, "an up-to-date version triggers no resolution"


async def test_hash_annotations_are_updated_after_each_migration(fake: WorkerHarness) -> None:
    """Karpenter wrote its own version again before the cluster came back."""
    fake.claims.add("a", annotations=dict(BY_KARPENTER))
    fake.claims.set_status("a", provider_id="aws:///us-west-2a/i-a")
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    for _ in range(2):
        await signal_observed(fake, handle, stamps="v6")
        await wait_until(lambda: hash_version(fake) == HASH_VERSION)
        await signal_observed(fake, handle)
        assert await is_ready(handle, "True")
        fake.claims.found["a"]["metadata"]["annotations"] |= BY_KARPENTER


def hash_version(fake: WorkerHarness) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"][NODECLASS_HASH_VERSION])
