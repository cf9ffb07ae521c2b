"""EC2 as the launch path needs it: state in `environment`, a file per group of actions, their table in `actions`."""
