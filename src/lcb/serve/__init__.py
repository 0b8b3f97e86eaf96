"""The decision service: an append-only log, a fold of it in memory, and HTTP around both.

    request ──► desk: what to decide ──► journal: on disk ──► world: the fold moves ──► answer

`desk`, `world` and `records` know neither sockets nor threads; clock, ids and store are handed to them.
"""
