"""A static trie over strings as a double array: three flat integer arrays that can be memory-mapped.

The child of node `s` by symbol `c` is `t = base[s] + c`, and it exists where `check[t] == s`; `value[t]` is the number
of the string that ends there, or -1. Symbols count from 1, so that symbol 0 never has a child. (J. Aoe, "An efficient
digital search algorithm by using a double-array structure", IEEE TSE 15(9), 1989.)

Building it is deterministic and done once; 250,000 strings take two seconds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kura.embed.prepared import Prepared

_PATIENCE = 40
"""Free slots tried for one node before the search gives up on the crowded front of the arrays."""


@dataclass(frozen=True, slots=True)
class DoubleArray:
    """The arrays described in the module's docstring, int32, and the characters that symbols 1, 2, … stand for."""

    base: NDArray[np.int32]
    check: NDArray[np.int32]
    value: NDArray[np.int32]
    alphabet: str

    @classmethod
    def of(cls, prepared: Prepared) -> "DoubleArray":
        """The trie of a prepared model file.

        Raises:
            EmbedderError: if the file lacks a part of it.
        """
        alphabet = prepared.tensor("trie.alphabet").tobytes().decode("utf-32-le")
        base, check, value = (prepared.tensor(f"trie.{name}") for name in ("base", "check", "value"))
        return cls(base, check, value, alphabet)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What a prepared model file holds of it."""
        return {
            "trie.base": self.base,
            "trie.check": self.check,
            "trie.value": self.value,
            "trie.alphabet": np.frombuffer(self.alphabet.encode("utf-32-le"), "<u4"),
        }


@dataclass(frozen=True, slots=True)
class _Edges:
    """A trie's edges, sorted by parent, then symbol; node 0 is the root, and each other node is the child of one edge.

    `value` has one entry per node: the number of the string that ends there, or -1.
    """

    parent: NDArray[np.int64]
    symbol: NDArray[np.int64]
    child: NDArray[np.int64]
    value: NDArray[np.int32]


def build(strings: Sequence[str]) -> DoubleArray:
    """Build the trie of `strings`, whose values are their positions.

    Raises:
        ValueError: if a string is empty or there twice, or there is none.
    """
    if not all(strings) or len(set(strings)) != len(strings) or not strings:
        raise ValueError("a trie needs strings, none of them empty and no two the same")
    frequency = Counter[str]()
    for string in strings:
        frequency.update(set(string))
    # Frequent characters get small symbols: that packs the arrays tighter.
    alphabet = "".join(sorted(frequency, key=lambda character: (-frequency[character], character)))
    edges = _edges(strings, alphabet)
    return _place(edges, alphabet)


def strings(index: DoubleArray) -> list[str]:
    """The strings that a trie was built from, in their order."""
    slots = np.flatnonzero(index.value >= 0)
    slots = slots[np.argsort(index.value[slots])]
    # All of them climb to the root at once, a character a step; who has arrived adds nothing more.
    letters = np.array(["", *index.alphabet])
    result = np.full(len(slots), "", dtype=np.dtypes.StringDType())
    while slots.any():
        parents = np.where(slots > 0, index.check[slots], 0)
        result = letters[np.where(slots > 0, slots - index.base[parents], 0)] + result
        slots = parents
    return result.tolist()


def _edges(strings: Sequence[str], alphabet: str) -> _Edges:
    """Find the nodes column by column over the sorted strings: a row opens a node wherever its prefix is a new one."""
    count, width = len(strings), max(map(len, strings))
    symbol_of = {character: symbol for symbol, character in enumerate(alphabet, 1)}
    symbols = np.zeros((count, width), np.int64)
    for row, string in enumerate(strings):
        symbols[row, : len(string)] = [symbol_of[character] for character in string]
    order = np.lexsort(symbols.T[::-1])
    symbols = symbols[order]
    length = np.count_nonzero(symbols, axis=1)
    shared = np.zeros(count, np.int64)  # how many leading symbols a row has in common with the one above
    shared[1:] = np.argmax(symbols[1:] != symbols[:-1], axis=1)
    first_node = 1 + np.concatenate(([0], np.cumsum(length - shared)[:-1]))
    rows = np.arange(count)
    parents: list[NDArray[np.int64]] = []
    labels: list[NDArray[np.int64]] = []
    children: list[NDArray[np.int64]] = []
    above = np.zeros(count, np.int64)
    for column in range(width):
        opens = (shared <= column) & (column < length)
        latest = np.maximum.accumulate(np.where(opens, rows, 0))
        here = first_node[latest] + column - shared[latest]
        parents.append(above[opens])
        labels.append(symbols[opens, column])
        children.append(here[opens])
        above = here
    parent, symbol, child = np.concatenate(parents), np.concatenate(labels), np.concatenate(children)
    value = np.full(len(child) + 1, -1, np.int32)
    value[first_node + length - shared - 1] = order
    by_parent = np.lexsort((symbol, parent))
    return _Edges(parent[by_parent], symbol[by_parent], child[by_parent], value)


def _place(edges: _Edges, alphabet: str) -> DoubleArray:
    """Give every node a slot: those with many children first, each at the first base where all its children fit."""
    nodes = len(edges.value)
    fan_out = np.bincount(edges.parent, minlength=nodes)
    first_edge = np.concatenate(([0], np.cumsum(fan_out)[:-1]))
    base = np.zeros(nodes, np.int64)  # by node for now, by slot in the end
    # The root is slot 0 with base 0: its child by symbol c is slot c.
    used = bytearray(2 * nodes + 4 * len(alphabet) + 64)
    used[: len(alphabet) + 1] = b"\x01" * (len(alphabet) + 1)
    front = len(alphabet) + 1
    crowded = np.flatnonzero(fan_out > 1)
    crowded = crowded[np.argsort(-fan_out[crowded], kind="stable")]
    for node in crowded[crowded != 0].tolist():
        start = int(first_edge[node])
        symbols: list[int] = edges.symbol[start : start + int(fan_out[node])].tolist()
        offsets = [symbol - symbols[0] for symbol in symbols]
        slot, tries = used.find(0, front), 0
        while any(used[slot + offset] for offset in offsets):
            slot, tries = used.find(0, slot + 1), tries + 1
        if tries > _PATIENCE:
            front = used.find(0, front + (slot - front) // 8)
        base[node] = slot - symbols[0]
        for offset in offsets:
            used[slot + offset] = 1
    # An only child fits into any free slot.
    lone = np.flatnonzero(fan_out == 1)
    lone = lone[lone != 0]
    free = np.flatnonzero(np.frombuffer(used, np.uint8)[len(alphabet) + 1 :] == 0) + len(alphabet) + 1
    base[lone] = free[: len(lone)] - edges.symbol[first_edge[lone]]
    slot_of = np.zeros(nodes, np.int64)
    slot_of[edges.child] = base[edges.parent] + edges.symbol
    size = int(slot_of.max()) + 1 + len(alphabet) + 1  # so that base + symbol is within bounds whatever the symbol
    result = DoubleArray(
        np.zeros(size, np.int32), np.full(size, -1, np.int32), np.full(size, -1, np.int32), alphabet=alphabet
    )
    result.base[slot_of] = base
    result.value[slot_of] = edges.value
    result.check[slot_of[edges.child]] = slot_of[edges.parent]
    return result
