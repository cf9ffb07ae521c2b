"""When full collections run."""

import gc

import pytest

from tenure import gc_settings
from tenure.gc_settings import FullCollections, read_resident_bytes, tune_gc


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def count_cycles() -> int:
    return sum(isinstance(one, Cycle) for one in gc.get_objects())


def test_full_collection_runs_when_memory_has_grown_since_the_last_one() -> None:
    sizes = iter([100, 109, 111, 150, 164, 166, 140, 153, 155])
    times = iter(range(0, 10 * 60, 30))
    collections = FullCollections(lambda: next(times), lambda: next(sizes))
    Cycle()
    assert [collections.collect_if_grown() for _ in range(2)] == [False, False], "too early, and only 109"
    assert count_cycles() == 1
    assert collections.collect_if_grown() and count_cycles() == 0
    assert [collections.collect_if_grown() for _ in range(4)] == [False, False, True, False], "compared with 150"


@pytest.mark.parametrize("has_proc", [True, False])
def test_only_without_proc_python_decides_on_full_collections(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_proc:
        monkeypatch.setattr(gc_settings, "_STATM", gc_settings._STATM / "missing")
    before = gc.get_threshold()
    try:
        tune_gc()
        assert (gc.get_threshold()[2] == gc_settings.NEVER) is has_proc
        assert (read_resident_bytes() > 0) is has_proc
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
