"""EC2 as the launch path needs it: state in `world`, a file per group of actions, their table in `actions`."""
