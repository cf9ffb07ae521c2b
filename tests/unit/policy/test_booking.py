"""The book of permits that all NodePools share."""

from datetime import timedelta

from tenure.model.disruption.permits import BookAsked, Booked
from tenure.policy.disruption.permits import before, booked, lapses
from tests.unit.policy.builders import NOW

SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(minutes=8)


def asked(pool: str, **wanted: int) -> BookAsked:
    """By UID how many minutes from now."""
    until = {uid: NOW + timedelta(minutes=minutes) for uid, minutes in wanted.items()}
    return BookAsked(pool=pool, workflow_id=pool, wanted=until)


def test_who_books_second_sees_the_first_and_not_itself() -> None:
    book = booked((), asked("a", a1=1), NOW)
    assert before(book, "a") == ()
    book = booked(book, asked("b", b1=1, b2=8), NOW)
    assert before(book, "b") == ("a1",) and before(book, "a") == ("b1", "b2")


def test_a_pool_has_what_it_asked_for_last_and_others_keep_theirs_until_they_lapse() -> None:
    book = (
        Booked(pool="a", claim_uid="a1", until=NOW),
        Booked(pool="a", claim_uid="a2", until=LATER),
        Booked(pool="b", claim_uid="b1", until=SOON),
    )
    assert booked(book, asked("b", b2=1), NOW) == (book[1], Booked(pool="b", claim_uid="b2", until=SOON))
    assert booked(book, asked("b"), NOW) == (book[1],)


def test_others_places_lapse_at_the_first_of_their_times() -> None:
    book = booked((), asked("a", a1=8, a2=3), NOW)
    assert lapses(book, "b") == NOW + timedelta(minutes=3)
    assert lapses(book, "a") is None
