"""Tenure: a node autoscaler and node-lifecycle controller for Kubernetes on AWS."""
