"""Imports a log of any format into the files that `lcb.storage.logs.log.open_log` opens.

    source        the input: a table (table_source) or a loader of `lcb.datasets`
    import_log    checks rows, codes users, sorts by user and time, drops duplicates, writes

Rows are read in batches, checked and spilled to disk; a second pass sorts them in parts of a few million.  Memory grows
with users and items, not with events (except that the events of one user are sorted in memory).
"""
