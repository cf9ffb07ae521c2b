"""boto3 adapters: they satisfy the ports in `activities/ports/core.py` and raise `model.faults`."""
