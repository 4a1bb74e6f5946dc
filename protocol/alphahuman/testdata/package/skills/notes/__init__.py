from .words import GREETING  # a relative import, as packages have them
