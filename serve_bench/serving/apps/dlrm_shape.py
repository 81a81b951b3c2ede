"""The dimensions of a DLRM.

No torch at import, so that a command can say what fits before anything is started. The model is
that of arXiv 1906.00091; the defaults are those of the published recommendation app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

FLOAT_BYTES = 4

#: Rows of all tables together: row numbers of the one fused table are 32-bit.
MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Shape:
    """A DLRM. `width` is the length of an embedding; `table_rows` the rows of each table.

    `bottom` and `top` are the widths of the layers; the last of `bottom` must be `width`, since its
    output stands beside the embeddings, and a last layer of one follows `top`. `rows_per_request`:
    candidates that one request has scored. Raises ValueError naming the field.
    """

    dense_features: int = 13
    sparse_features: int = 26
    width: int = 64
    table_rows: int = 100_000
    bottom: tuple[int, ...] = (256, 64)
    top: tuple[int, ...] = (256, 128, 64)
    rows_per_request: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not numbers or not all(isinstance(n, int) and n >= 1 for n in numbers):
                raise ValueError(f"{field.name}: {value!r} is not allowed; it takes 1 or more")
        if self.bottom[-1] != self.width:
            raise ValueError(
                f"bottom: its last layer must be as wide as an embedding ({self.width}), "
                f"not {self.bottom[-1]}"
            )
        if self.sparse_features * self.table_rows > MOST_ROWS:
            raise ValueError(
                f"table_rows: {self.sparse_features} tables may have {MOST_ROWS:,} rows in all"
            )

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> Shape:
        """Make a shape of the fields among `args`; layers as a list or as text such as "256,64"."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in args:
                continue
            value = args[field.name]
            if field.name in ("bottom", "top"):
                parts = value.split(",") if isinstance(value, str) else value
                values[field.name] = tuple(int(part) for part in parts)
            else:
                values[field.name] = int(value)
        return cls(**values)

    @property
    def columns(self) -> int:
        """Numbers in a packed row: dense features, then the ids of the sparse ones."""
        return self.dense_features + self.sparse_features

    @property
    def vectors(self) -> int:
        """Vectors that interact: one of each table, and the output of the bottom layers."""
        return self.sparse_features + 1

    @property
    def pairs(self) -> int:
        """Pairs of different vectors."""
        return self.vectors * (self.vectors - 1) // 2

    @property
    def tables_bytes(self) -> int:
        """Memory of all tables."""
        return self.sparse_features * self.table_rows * self.width * FLOAT_BYTES
