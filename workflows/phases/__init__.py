"""A node's life, one file per phase: `launch`, `registration`, `initialization`, `ready`, `drain`, `termination`.

The other files handle what can happen in several phases: `failure` (missing and replaced nodes), `recovery` (NotReady),
`interruption` and `stop_start` (AWS events), `repair`, `hooks`, `pause`, and `status_reports` (conditions and events).
"""
