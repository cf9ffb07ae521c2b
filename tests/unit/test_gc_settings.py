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


class FakeProcess:
    """A process whose time and memory a test sets."""

    def __init__(self) -> None:
        self.seconds, self.resident_bytes = 0.0, 100
        self.collections = FullCollections(lambda: self.seconds, lambda: self.resident_bytes)

    def is_collected_at(self, seconds: float, resident_bytes: int) -> bool:
        self.seconds, self.resident_bytes = seconds, resident_bytes
        return self.collections.collect_if_grown()


def test_full_collection_runs_when_memory_has_grown_since_the_last_one() -> None:
    process = FakeProcess()
    Cycle()
    assert not process.is_collected_at(59, 200) and not process.is_collected_at(60, 109)
    assert count_cycles() == 1
    assert process.is_collected_at(61, 150) and count_cycles() == 0
    assert not process.is_collected_at(120, 200), "too early"
    assert not process.is_collected_at(121, 164) and process.is_collected_at(122, 166)


def test_growth_is_compared_with_the_least_memory_since_the_last_collection() -> None:
    """Memory is returned to the system only after a collection."""
    process = FakeProcess()
    assert process.is_collected_at(60, 200)
    assert not process.is_collected_at(120, 100) and process.is_collected_at(180, 111)


def test_garbage_without_growth_is_collected_after_an_hour() -> None:
    process = FakeProcess()
    assert not process.is_collected_at(3599, 100) and process.is_collected_at(3600, 100)
    assert not process.is_collected_at(7199, 100) and process.is_collected_at(7200, 100)


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
