"""Import a log of any form into the files that `lcb.storage.logs.log.open_log` opens.

    source        where events come from: a table (table_source) or a loader of `lcb.datasets`
    import_log    check rows, code users, sort by user and time, drop duplicates, write

Rows are read in batches, checked and spilled to disk; a second pass sorts them in parts of a few million.  Memory grows
with users and items, not with events (except that the events of one user are sorted in memory).
"""
