"""Vectors as bytes: float32 rows, and packed segments of one byte per component.

Vectors of a text embedder lie in a narrow cone (K. Ethayarajh, "How Contextual are Contextualized Word
Representations?", arXiv:1909.00512), and so do its queries. What a row has in the direction of that cone, its centre,
is therefore kept as a float, and only the rest is rounded, which is shorter and errs across the queries rather than
along them: 10 nearest of 1,300 passages by multilingual-e5-small come out as with float32 to 99.6 %, not to 98.0 %.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

CODEC = "int8-along"
"""Name of the packing below, stored with each segment so that another one can follow."""

ROUND = np.float32(0.3)
"""Length of the mean of unit rows below which they are no cone, and a centre is of no use."""


def to_bytes(vector: Floats) -> bytes:
    """One vector, or the rows of a matrix, as little-endian float32."""
    return vector.astype("<f4", copy=False).tobytes()


def from_bytes(blobs: list[bytes], dimension: int) -> Floats:
    """Rows of little-endian float32 as a matrix of shape (len(blobs), dimension).

    Raises:
        ValueError: if a row has another length.
    """
    if any(len(blob) != 4 * dimension for blob in blobs):
        raise ValueError(f"a stored vector does not have {dimension} dimensions")
    return np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False).reshape(len(blobs), dimension)


def centre_of(rows: Floats) -> Floats:
    """The direction that `rows`, shape (n, d), have in common: shape (d,), of unit length; zero if there is none."""
    mean = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1])
    length = np.linalg.norm(mean)
    return (mean / length if length >= ROUND else np.zeros_like(mean)).astype(np.float32)


def pack(rows: Floats, centre: Floats) -> tuple[Floats, Floats, NDArray[np.int8]]:
    """Round what each row has across `centre`, by its largest component, and keep what it has along it.

    Args:
        rows: Shape (n, d).
        centre: Shape (d,), of unit length or zero.

    Returns:
        Scales of shape (n,), lengths along the centre of shape (n,), and codes of shape (n, d).
    """
    across = rows - np.outer(_dot(rows, centre), centre)
    scales = (np.abs(across).max(axis=1, initial=0.0) / 127).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    codes = np.rint(across / safe[:, None]).astype(np.int8)
    # Of the rounded rest, a little lies along the centre again: that is taken off here.
    along = _dot(rows - codes * scales[:, None], centre)
    return scales, along, codes


def _dot(rows: Floats, centre: Floats) -> Floats:
    # Not BLAS, whose last bit depends on where among others a row stands: packed alone it would read otherwise.
    return np.einsum("ij,j->i", rows, centre, dtype=np.float32)


def unpack(scales: Floats, along: Floats, codes: NDArray[np.int8], centre: Floats, out: Floats) -> None:
    """Expand packed rows into `out`, shape (n, d)."""
    np.multiply(codes, scales[:, None], out=out)
    if centre.any():
        out += np.outer(along, centre)


def repacked(rows: Floats, centre: Floats) -> Floats:
    """The rows as they will read once they are packed, so that a score does not move when that happens."""
    out = np.empty_like(rows)
    scales, along, codes = pack(rows, centre)
    unpack(scales, along, codes, centre, out)
    return out
