"""Manifests, charts and policies for a cluster and an AWS account; package data."""
