"""The book of permits that all NodePools share."""

from datetime import timedelta

from tenure.model.disruption.permits import PermitReservation, ReservationRequest
from tenure.policy.disruption.permits import reservations_lapse_at, reserved_by_others, update_reservations
from tests.unit.policy.builders import NOW

SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(minutes=8)


def reservation_request(pool: str, **minutes_by_uid: int) -> ReservationRequest:
    """By UID how many minutes from now."""
    until = {uid: NOW + timedelta(minutes=minutes) for uid, minutes in minutes_by_uid.items()}
    return ReservationRequest(pool=pool, workflow_id=pool, desired=until)


def test_who_books_second_sees_the_first_and_not_itself() -> None:
    ledger = update_reservations((), reservation_request("a", a1=1), NOW)
    assert reserved_by_others(ledger, "a") == ()
    ledger = update_reservations(ledger, reservation_request("b", b1=1, b2=8), NOW)
    assert reserved_by_others(ledger, "b") == ("a1",) and reserved_by_others(ledger, "a") == ("b1", "b2")


def test_a_pool_has_what_it_asked_for_last_and_others_keep_theirs_until_they_lapse() -> None:
    ledger = (
        PermitReservation(pool="a", claim_uid="a1", until=NOW),
        PermitReservation(pool="a", claim_uid="a2", until=LATER),
        PermitReservation(pool="b", claim_uid="b1", until=SOON),
    )
    assert update_reservations(ledger, reservation_request("b", b2=1), NOW) == (
        ledger[1],
        PermitReservation(pool="b", claim_uid="b2", until=SOON),
    )
    assert update_reservations(ledger, reservation_request("b"), NOW) == (ledger[1],)


def test_others_places_lapse_at_the_first_of_their_times() -> None:
    ledger = update_reservations((), reservation_request("a", a1=8, a2=3), NOW)
    assert reservations_lapse_at(ledger, "b") == NOW + timedelta(minutes=3)
    assert reservations_lapse_at(ledger, "a") is None
