from .gaussian import fit as fit
