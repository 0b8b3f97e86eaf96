"""Algorithms that choose for one user: `start`, `choose`, `update`; the state is one flat array, handed in and back."""
