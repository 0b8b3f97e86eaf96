from .collapsed import fit as fit
