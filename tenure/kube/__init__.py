"""Kubernetes adapters on `kubernetes.aio`. They implement the ports and raise the faults of `model/errors.py`."""
