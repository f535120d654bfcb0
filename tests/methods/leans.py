"""Where a convolutional tower looks, once more: one axis at a time, by sending energy back from a cell to the pixels.

A kernel passes a place's energy on to the places that it reads, in shares of its squared weights. What a cell gets is
followed back through every layer, place by place, and the mean place is compared with the middle of the cell.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

MIDDLE = 12  # convolutions wider than one place up to the finer map, of the published network: the stem and 11 blocks


def of(tower, edge):
    """Pixels by which the tokens of a square canvas look below and to the right, in whole hundredths of a cell."""
    kernels = [tower.stem, *(block.depthwise for block in tower.blocks)]
    weights = [conv.weight.detach().double().numpy() for conv in kernels]
    strides = [conv.stride[0] for conv in kernels]
    found = []
    for axis in (0, 1):
        shares = [(w**2).sum((0, 1, 3 - axis)) for w in weights]
        shares = [s / s.sum() for s in shares]
        both = [beside(shares[:count], strides[:count], edge) for count in (MIDDLE, len(shares))]
        found.append(Fraction(round(100 * sum(both) / 2 / 16), 100) * 16)
    return tuple(found)


def beside(shares, strides, pixels):
    """Pixels between the mean place that the first cell reads, borders left aside, and its middle."""
    lengths = [pixels]
    for stride in strides:
        lengths.append(-(-lengths[-1] // stride))
    energy = {0: 1.0}
    for share, stride, before, behind in reversed(list(zip(shares, strides, lengths, lengths[1:], strict=False))):
        added = max((behind - 1) * stride + len(share) - before, 0) // 2
        spread = {}
        for place, amount in energy.items():
            for tap, part in enumerate(share):
                read = place * stride + tap - added
                spread[read] = spread.get(read, 0.0) + amount * part
        energy = spread
    cell = float(np.prod(strides))
    return sum(amount * (place + 0.5) for place, amount in energy.items()) - cell / 2
