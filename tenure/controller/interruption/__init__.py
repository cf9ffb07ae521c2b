"""Interruptions: readers of AWS messages, and signals to NodeClaim workflows."""
