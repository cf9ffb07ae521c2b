"""Manifests that work as they are; package data."""
