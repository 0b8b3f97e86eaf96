from .fitting import fit as fit
