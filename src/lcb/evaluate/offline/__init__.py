"""Estimates from a log how algorithms that never ran would have done."""
