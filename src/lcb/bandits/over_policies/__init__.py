"""Bandits over a set of policies, one per class: the EXP family, Epoch-Greedy, ILOVETOCONBANDITS."""
