from .experts import fit as fit
