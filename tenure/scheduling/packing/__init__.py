"""Bin packing of pods onto existing and new nodes."""
