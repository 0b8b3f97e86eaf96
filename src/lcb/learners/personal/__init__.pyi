from .mixture import fit as fit
