"""A measured figure and the budget it is held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        name: what it is.
        value: the median of its samples.
        unit: of the value.
        budget: what it may not exceed, or None for a figure that is only reported.
        spread: the smallest and the largest sample.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def within_budget(self) -> bool:
        return self.budget is None or self.value <= self.budget


def median_of(name: str, samples: Sequence[float], unit: str, budget: float | None = None) -> Figure:
    """The figure of several samples."""
    spread = (round(min(samples), 3), round(max(samples), 3))
    return Figure(name, round(statistics.median(samples), 3), unit, budget, spread)
