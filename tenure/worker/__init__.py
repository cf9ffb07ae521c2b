"""The parts of the worker process that `worker.py` composes: settings of its objects, adapters and Temporal workers."""
