"""Item effects learned together with the classes."""
