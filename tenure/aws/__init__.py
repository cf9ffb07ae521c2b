"""boto3 adapters. They implement the ports in `activities/ports/core.py` and raise the faults of `model/errors.py`."""
