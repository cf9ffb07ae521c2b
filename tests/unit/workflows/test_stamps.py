"""A class whose NodeClaims bear stamps of another version is looked at when the watch says so, and once for it."""

from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import NODECLASS_HASH, NODECLASS_HASH_VERSION
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually
from tests.support.workflows.lives import node_class
from tests.unit.workflows.test_nodeclass import is_ready, see


async def test_stamps_of_another_version_are_brought_up_to_date(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.claims.add("a", annotations={NODECLASS_HASH: "1", NODECLASS_HASH_VERSION: "v6"})
    fake.claims.give("a", provider_id="aws:///us-west-2a/i-a")
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    looks = fake.resolver.resolved
    assert version(fake) == "v6", "nobody told of it"
    await see(fake, handle, stamps="v6")
    await eventually(lambda: is_stamped(fake))
    await see(fake, handle)
    await skipping.sleep(timedelta(minutes=1))
    assert fake.resolver.resolved == looks + 1, "that all is well is no reason to look"


async def is_stamped(fake: World) -> bool:
    return version(fake) == HASH_VERSION


def version(fake: World) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"][NODECLASS_HASH_VERSION])
