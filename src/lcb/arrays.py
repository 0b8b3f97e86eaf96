"""Types of the arrays that all modules pass to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]
LARGEST = 1e100  # absolute value of a feature or a reward: their squares and sums stay finite
