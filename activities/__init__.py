"""What touches the world: one file per outside thing, behind the ports of `ports.py`."""
