"""The launch path of EC2: state in `state`, a file per group of actions, and their table in `actions`."""
