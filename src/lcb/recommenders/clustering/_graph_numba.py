"""Compiled graph functions of CLUB: neighbours, deleting edges, and splitting components.

After edges of one user are deleted, only that user and its former neighbours can be disconnected.  For each former
neighbour, a search runs from both ends, one user at a time, until the two meet or one side is exhausted: that side is
then a new component.  The cost is that of the smaller side, not of the whole graph.
"""

from __future__ import annotations

import numpy as np

from lcb.runtime._copies_numba import add_vector, copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def neighbours(graph, i, found):  # type: ignore[no-untyped-def]
    """Write the neighbours of `i` to `found` (n,); return their number.

    In a complete graph the highest numbers come first: they are users who have not started, who still have all their
    edges, so searches that visit them first meet soon.
    """
    n_found = 0
    if len(graph.matrix) > 0:
        row = graph.matrix[i]
        for k in range(len(row)):
            found[n_found] = len(row) - 1 - k
            n_found += int(row[len(row) - 1 - k])
    else:
        n_found = graph.live[i]
        start = graph.starts[i]
        for k in range(n_found):
            found[k] = graph.others[start + k]
    return n_found


@njit(**EXACT)
def cut(graph, i, other):  # type: ignore[no-untyped-def]
    """Delete the edge between two neighbours."""
    if len(graph.matrix) > 0:
        graph.matrix[i, other] = 0
        graph.matrix[other, i] = 0
    else:
        _remove_neighbour(graph, i, other)
        _remove_neighbour(graph, other, i)


@njit(**EXACT)
def _remove_neighbour(graph, i, other):  # type: ignore[no-untyped-def]
    k, last = graph.starts[i], graph.starts[i] + graph.live[i] - 1
    while graph.others[k] != other:
        k += 1
    graph.others[k] = graph.others[last]
    graph.others[last] = other
    graph.live[i] -= 1


@njit(**EXACT)
def find_components(graph, label):  # type: ignore[no-untyped-def]
    """Number the components 0, 1, ... in `label` (n,); return their number."""
    n = len(label)
    label[:] = -1
    queue, found, n_components = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for first in range(n):
        if label[first] >= 0:
            continue
        label[first] = n_components
        queue[0] = first
        head, tail = 0, 1
        while head < tail:
            for k in range(neighbours(graph, queue[head], found)):
                other = found[k]
                if label[other] < 0:
                    label[other] = n_components
                    queue[tail] = other
                    tail += 1
            head += 1
        n_components += 1
    return n_components


@njit(**EXACT)
def _expand(graph, side, queue, head, tail, marks, other_side, stop, found):  # type: ignore[no-untyped-def]
    """Add the unvisited neighbours of the user at `head` to this side's queue, and mark them.

    Return whether the other side was met, and the new end of the queue; with `stop`, end as soon as it is met.
    """
    met = False
    for k in range(neighbours(graph, queue[head], found)):
        other = found[k]
        if marks[other] == other_side:
            met = True
            if stop:
                break
        elif marks[other] != side:
            marks[other] = side
            queue[tail] = other
            tail += 1
    return met, tail


@njit(**EXACT)
def _detach(members, components, stats):  # type: ignore[no-untyped-def]
    """Make these users a component with its own number and sums."""
    old, new = components.label[members[0]], components.n[0]
    components.n[0] += 1
    total = np.zeros(stats.shape[1])
    for i in members:
        components.label[i] = new
        total += stats[i]
    copy_vector(total, components.sums[new])
    add_vector(total, -1.0, components.sums[old])


@njit(**EXACT)
def split(graph, i, former, components, stats):  # type: ignore[no-untyped-def]
    """Split the component of `i` after its edges to the `former` neighbours were deleted."""
    near, far, found = components.room[0], components.room[1], components.room[2]
    marks, whole = components.marks, components.label[i]
    components.n[1] += 1
    side = components.n[1]
    marks[i], near[0] = side, i
    head, tail = 0, 1
    for target in former:
        if components.label[target] != whole or marks[target] == side:
            continue
        components.n[1] += 1
        far_side = components.n[1]
        marks[target], far[0] = far_side, target
        far_head, far_tail, met = 0, 1, False
        while not met and head < tail and far_head < far_tail:
            met, tail = _expand(graph, side, near, head, tail, marks, far_side, False, found)
            head += 1
            if not met:
                met, far_tail = _expand(graph, far_side, far, far_head, far_tail, marks, side, True, found)
                far_head += 0 if met else 1
        if met:  # the far side is connected: add it to the near one
            for k in range(far_tail):
                marks[far[k]] = side
                near[tail] = far[k]
                if k < far_head:  # its neighbours are visited: move it before `head`
                    near[head], near[tail] = near[tail], near[head]
                    head += 1
                tail += 1
        elif far_head == far_tail:
            _detach(far[:far_tail], components, stats)
        else:  # the near side is exhausted: the search continues from the far one
            _detach(near[:tail], components, stats)
            near, far = far, near
            side, head, tail = far_side, far_head, far_tail
