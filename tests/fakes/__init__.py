"""An in-memory world behind the ports: for tests of workflows and activities, where time is skipped."""
