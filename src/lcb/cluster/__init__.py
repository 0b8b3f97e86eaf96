"""Users on the machines of a Ray cluster: the same learners, the same classes."""
