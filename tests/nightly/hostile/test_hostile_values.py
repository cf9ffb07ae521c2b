"""Hostile values in every field: ordinary pods still get nodes, and nodes drain, in the usual time."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from tests.nightly.hostile.batch import Batch, check_ordinary_pod, find_culprits
from tests.support.hostile.objects import build_hostile_objects
from tests.support.product.product import DedicatedProduct

RecordProperty = Callable[[str, object], None]
OBJECTS: Final = build_hostile_objects()
BATCH_SIZE: Final = 120
BATCHES: Final = -(-len(OBJECTS) // BATCH_SIZE)
REJECTION_STATUSES: Final = {400, 403, 409, 413, 422, 500, 504}
"""Status codes with which the API server may reject a hostile object.

403 comes from admission plugins, 500 from an apply with a wrong type, 504 from a value that takes the API server itself
too long. `1e999999999` is not among the values: the API server spends a minute of two cores on each.
"""
MIN_ACCEPTED: Final = 300
accepted, rejected = Counter[str](), Counter[str]()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(BATCHES))
async def test_hostile_value_affects_only_its_own_object(
    hostile_product: DedicatedProduct, record_property: RecordProperty, number: int
) -> None:
    objects = OBJECTS[number::BATCHES]
    batch, name = Batch(hostile_product), f"hostile{number}"
    await batch.apply(objects)
    failures = {str(one): status for one, status in batch.rejected.items() if status not in REJECTION_STATUSES}
    accepted.update(one.kind for one in batch.accepted)
    rejected.update(one.kind for one in batch.rejected)
    counts = f"batch {number}: {len(batch.accepted)} accepted, {len(batch.rejected)} rejected by the API server"
    try:
        check = await check_ordinary_pod(hostile_product, name)
    except AssertionError as error:
        await batch.delete()
        culprits = await find_culprits(hostile_product, objects, name)
        error.add_note(f"culprits: {[str(one) for one in culprits] or 'none alone'}")
        raise
    _, report = await hostile_product.run_cli("stuck")
    await batch.delete()
    record_property("hostile", f"{counts}; pod {check.start_seconds:.0f} s, drain {check.drain_seconds:.0f} s")
    record_property("hostile", f"  named as invalid: {[one['name'] for one in report['invalidObjects']]}")
    assert not failures


@pytest.mark.usefixtures("hostile_product")
def test_api_server_accepts_enough_hostile_values(record_property: RecordProperty) -> None:
    if sum((accepted + rejected).values()) < len(OBJECTS):
        pytest.skip("needs all batches")
    for name, counts in (("accepted", accepted), ("rejected", rejected)):
        record_property("hostile", f"{counts.total()} {name}: {dict(sorted(counts.items()))}")
    assert accepted.total() >= MIN_ACCEPTED
    assert accepted.keys() == {one.kind for one in OBJECTS}, "kinds of which the API server accepts no value"
