"""Generated worlds whose classes are known."""
