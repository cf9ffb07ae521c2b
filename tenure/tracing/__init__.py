"""Traces of node startups with OpenTelemetry: from pending pods to Ready (docs/operating/tracing.md).

A trace spans several workflows and processes. The spans of plans, launch groups and NodeClaims have IDs that derive
from recorded IDs (`spans.py`), so no context is stored. `recorder.py` records nothing until a worker enables tracing,
and only `tenure/controller/temporal/tracing.py` imports OpenTelemetry.
"""
