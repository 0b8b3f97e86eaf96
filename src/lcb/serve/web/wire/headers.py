"""Headers that every answer has.

Browsers must not guess another type than the one that is given, and nobody keeps a copy of an answer that is about
people.  Only static files, which are the same for everybody, may be kept.
"""

NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = b"no-store"  # of Cache-Control
