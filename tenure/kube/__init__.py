"""Kubernetes adapters on `kubernetes.aio`: they satisfy ports and raise `model.faults`."""
