"""Saved models: safetensors and a manifest; weights of given classes in a CSV."""
