"""Vectors as bytes: float32 rows, and packed segments of int8 with one scale per row."""

import numpy as np
from numpy.typing import NDArray

CODEC = "int8"
"""Name of the packing below, stored with each segment so that another one can follow."""


def to_bytes(vector: NDArray[np.float32]) -> bytes:
    """One vector, shape (d,), as little-endian float32."""
    return vector.astype("<f4", copy=False).tobytes()


def from_bytes(blobs: list[bytes], dimension: int) -> NDArray[np.float32]:
    """Rows of little-endian float32 as a matrix of shape (len(blobs), dimension).

    Raises:
        ValueError: if a row has another length.
    """
    if any(len(blob) != 4 * dimension for blob in blobs):
        raise ValueError(f"a stored vector does not have {dimension} dimensions")
    return np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False).reshape(len(blobs), dimension)


def pack(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Quantise each row by its own largest component.

    Args:
        rows: Shape (n, d).

    Returns:
        Scales of shape (n,) and codes of shape (n, d); `scales[:, None] * codes` is within half a scale of the rows.
    """
    scales = (np.abs(rows).max(axis=1, initial=0.0) / 127).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    codes = np.rint(rows / safe[:, None]).astype(np.int8)
    return scales, codes


def unpack(scales: NDArray[np.float32], codes: NDArray[np.int8], out: NDArray[np.float32]) -> None:
    """Expand packed rows into `out`, shape (n, d), without a copy in between."""
    np.multiply(codes, scales[:, None], out=out)


def repacked(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows as they will read once they are packed, so that a score does not move when that happens."""
    out = np.empty_like(rows)
    unpack(*pack(rows), out)
    return out
