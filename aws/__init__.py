"""boto3 adapters: they satisfy the ports in `activities/ports.py` and raise `model.faults`."""
