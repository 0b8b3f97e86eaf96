"""From any log to the files that `lcb.storage.logs.log.open_log` opens.

    source      where events come from: a table with named columns, or a loader of `lcb.datasets`
    run         import_log: check rows, code users, sort by user and time, drop duplicates, write

Rows are read in batches, checked and spilled to disk; a second pass sorts them in parts of a few million.  Memory grows
with users and items, never with events (but for those of the one user who has the most).
"""
