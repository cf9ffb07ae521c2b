"""Pauses between tries."""

from datetime import timedelta


def backoff(first: timedelta, longest: timedelta, failures: int) -> timedelta:
    """`first`, and twice as long after each of the `failures`, up to `longest`."""
    doublings = min(max(failures, 0), 16)
    return min(longest, first * 2.0**doublings)
