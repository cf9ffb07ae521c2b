"""Exponential backoff between attempts."""

from datetime import timedelta


def backoff(first: timedelta, longest: timedelta, failures: int) -> timedelta:
    """`first`, doubled for each of the `failures`, up to `longest`."""
    doublings = min(max(failures, 0), 16)
    return min(longest, first * 2.0**doublings)
