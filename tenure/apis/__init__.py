"""Karpenter's kinds as frozen models that round-trip the API server's objects."""
