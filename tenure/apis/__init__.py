"""Karpenter's kinds as frozen models that read and write what the API server holds."""
