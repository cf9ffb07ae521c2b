"""What nodes have shown: the smallest counts, and what nobody uses is dropped at last."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model import discovered_capacity as module
from tenure.model.discovered_capacity import Learnt, LearntKept, LearntSeen, as_learnt, under
from tests.unit.scheduling.builders import GIB, kind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MIB = 1 << 20
DAY = timedelta(days=1)
TABLES = st.dictionaries(
    st.sampled_from(["ami-1", "ami-2"]),
    st.dictionaries(st.sampled_from(["m5.large", "m5.xlarge", "c5.large"]), st.integers(1, 9), min_size=1),
).map(lambda images: Learnt(images=images))


def shown(memory: int, image: str = "ami-1", instance_type: str = "m5.large") -> Learnt:
    return Learnt(images={image: {instance_type: memory}})


def seen(learnt: Learnt, *in_use: str) -> LearntSeen:
    return LearntSeen(learnt=learnt, images=in_use)


def test_the_smallest_counts_in_whichever_order_it_comes() -> None:
    low, high = shown(7640 * MIB), shown(7650 * MIB)
    for first, second in ((high, low), (low, high)):
        assert first.merged(second).memory("ami-1", "m5.large") == 7640 * MIB
    assert low.merged(shown(7700 * MIB)) is low


def test_images_and_types_are_apart() -> None:
    known = shown(1).merged(shown(2, image="ami-2")).merged(shown(3, instance_type="m5.xlarge"))
    assert (known.memory("ami-1", "m5.large"), known.memory("ami-2", "m5.large")) == (1, 2)
    assert (known.memory("ami-1", "m5.xlarge"), known.memory("ami-2", "m5.xlarge"), known.count) == (3, None, 3)


@given(TABLES, TABLES)
def test_what_one_says_beyond_the_other_is_just_what_the_other_lacks(one: Learnt, other: Learnt) -> None:
    news = one.beyond(other)
    assert other.merged(news) == other.merged(one)
    assert other.merged(one).images == one.merged(other).images
    assert not one.beyond(other.merged(one)).images


def test_what_is_kept_only_becomes_smaller() -> None:
    kept = LearntKept().after(seen(shown(8), "ami-1"), NOW).after(seen(shown(9), "ami-1"), NOW)
    assert kept.learnt == shown(8)
    assert kept.after(seen(shown(7), "ami-1"), NOW).learnt == shown(7)


def test_an_image_that_no_class_has_is_remembered_for_sixty_days() -> None:
    kept = LearntKept().after(seen(shown(8), "ami-1"), NOW)
    kept = kept.after(seen(Learnt(), "ami-2"), NOW + DAY)
    assert kept.after(seen(Learnt(), "ami-2"), NOW + 60 * DAY).learnt == shown(8)
    assert kept.after(seen(Learnt(), "ami-2"), NOW + 61 * DAY).learnt == Learnt()


def test_what_is_true_under_one_spec_of_a_class_counts_for_that_spec_and_goes_with_the_image() -> None:
    known = shown(8).merged(shown(7, image=under("ami-1", "123")))
    assert [known.memory("ami-1", "m5.large", spec) for spec in ("", "123", "456")] == [8, 7, 8]
    kept = LearntKept().after(seen(known, "ami-1"), NOW)
    assert not kept.unused_since
    assert kept.after(seen(Learnt()), NOW).after(seen(Learnt()), NOW + 60 * DAY).learnt == Learnt()


def test_an_image_in_use_is_never_too_old_and_one_that_comes_back_counts_anew() -> None:
    kept = LearntKept().after(seen(shown(8), "ami-1"), NOW)
    assert kept.after(seen(Learnt(), "ami-1"), NOW + 999 * DAY).learnt == shown(8)
    back = kept.after(seen(Learnt()), NOW + DAY).after(seen(Learnt(), "ami-1"), NOW + 50 * DAY)
    assert not back.unused_since
    assert back.after(seen(Learnt()), NOW + 61 * DAY).learnt == shown(8)


def test_beyond_the_bound_the_longest_unused_image_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    kept = LearntKept().after(seen(shown(1, "ami-old")), NOW).after(seen(shown(2, "ami-newer")), NOW + DAY)
    kept = kept.after(seen(shown(3, "ami-used"), "ami-used"), NOW + 2 * DAY)
    assert set(kept.learnt.images) == {"ami-used", "ami-newer"}
    assert set(kept.unused_since) == {"ami-newer"}


def test_thousands_of_entries_stay_far_below_what_a_message_may_have() -> None:
    def table(entries: int) -> Learnt:
        images = [f"ami-{number:017x}" for number in range(entries // 500)]
        return Learnt(images={one: {f"m7gd.metal-{n}xl": 2**40 + n for n in range(500)} for one in images})

    assert len(LearntKept(learnt=table(2000)).model_dump_json()) < 80_000
    assert len(LearntKept(learnt=table(module.MOST_ENTRIES)).model_dump_json()) < 500_000


def test_it_survives_json() -> None:
    kept = LearntKept().after(seen(shown(8).merged(shown(9, "ami-2")), "ami-1"), NOW)
    assert LearntKept.model_validate(json.loads(kept.model_dump_json())) == kept


def test_memory_is_replaced_entirely_and_overhead_stays() -> None:
    one = kind("m5.large", cpu=2, memory=8).model_copy(update={"image_id": "ami-1"})
    less, more = as_learnt(one, shown(7 * GIB)), as_learnt(one, shown(9 * GIB))
    assert (less.capacity["memory"], more.capacity["memory"]) == (7 * GIB, 9 * GIB)
    assert less.capacity["cpu"] == one.capacity["cpu"] and less.overhead == one.overhead
    assert less.allocatable()["memory"] == 7 * GIB - GIB // 2
    assert as_learnt(one, shown(7 * GIB, image="ami-2")) is one
