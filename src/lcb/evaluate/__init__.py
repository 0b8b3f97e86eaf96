"""How well an algorithm does: in a world whose truth is known."""
