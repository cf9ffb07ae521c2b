"""What is kept for a while, and how calls are held back: clocks and buckets."""

from tenure.aws.client.request_batcher import ExpiringCache


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_kept_lapses_and_sliding_use_prolongs_it() -> None:
    clock = Clock()
    plain, sliding = ExpiringCache[int](10, clock=clock), ExpiringCache[int](10, sliding=True, clock=clock)
    for one in (plain, sliding):
        one.put("a", 1)
    clock.now = 9
    assert (plain.get("a"), sliding.get("a")) == (1, 1)
    clock.now = 12
    assert (plain.get("a"), sliding.get("a")) == (None, 1)


def test_what_is_forgotten_is_gone_and_room_is_bounded() -> None:
    one = ExpiringCache[int](10, clock=Clock(), limit=3)
    for key in range(5):
        one.put(key, key)
    assert len([key for key in range(5) if one.get(key) is not None]) <= 3
    one.put("a", 1)
    one.forget("a")
    assert one.get("a") is None


async def test_an_answer_is_asked_for_once() -> None:
    calls = []

    async def fetch() -> int:
        calls.append(1)
        return 7

    one = ExpiringCache[int](10, clock=Clock())
    assert [await one.get_or_load("a", fetch), await one.get_or_load("a", fetch)] == [7, 7]
    assert len(calls) == 1
