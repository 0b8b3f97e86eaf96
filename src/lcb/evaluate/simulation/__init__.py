"""Plays algorithms in a generated world and measures their regret."""
