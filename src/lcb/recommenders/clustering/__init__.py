"""Recommenders that cluster users while they serve them: CLUB and SCLUB."""
