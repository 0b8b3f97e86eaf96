"""How much one caller may take from the others: requests a second, time, large bodies, large answers."""
