"""Gibbs sampling of the classes: collapsed and blocked, with what the chains leave behind."""
