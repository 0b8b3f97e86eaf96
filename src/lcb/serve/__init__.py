"""The decision service: an append-only event log, the state in memory rebuilt from it, and HTTP around both.

    request ──► decide/: an event ──► log/: stored by group commit ──► state/: the event is applied ──► answer

`decide/` and `state/` use neither sockets nor threads; clock, ids and store are passed to them.
"""
