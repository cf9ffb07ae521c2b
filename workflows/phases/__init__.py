"""A node's life, one file per phase: `launch`, `registration`, `initialization`, `ready`, `drain`, `termination`.

The other files are used in several phases: `failure` (failed NodeClaims, missing Nodes), `recovery` (lost workflows),
`interruption` and `stop_start` (AWS events), `repair`, `hooks`, `pause`, and `status_reports` (conditions and events).
"""
