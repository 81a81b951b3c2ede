"""The keys of a suite file, and the flags that override them, in one Content for all readers.

Rule: a flag is a key of the suite with another origin (`places`), which errors name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from serve_bench.core.axes import only_keys
from serve_bench.core.errors import BadInput


@dataclass(frozen=True)
class Content:
    """The tables of a suite file. A key is dotted: `load.windows`."""

    file: str  # its name
    data: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)  # origin of keys not from it: a flag

    def where(self, key: str) -> str:
        """Name the origin of a key for an error."""
        return self.places.get(key, f"{self.file}: {key}")

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key. Raises BadInput where the part above it is no table."""
        above, _, name = key.rpartition(".")
        return (self.table(above) if above else self.data).get(name, default)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table, empty where there is none. Raises BadInput."""
        table = self.get(key, {})
        if not isinstance(table, Mapping):
            raise BadInput(f"{self.where(key)}: must be a table, as [{key}]")
        return table

    def set(self, key: str, value: Any, place: str) -> Content:
        """Return a copy with the value of a key, given at `place`; None changes nothing."""
        if value is None:
            return self
        above, _, name = key.rpartition(".")
        entry = {above: {**self.table(above), name: value}} if above else {name: value}
        return replace(self, data={**self.data, **entry}, places={**self.places, key: place})

    def without(self, *keys: str) -> Content:
        """Return a copy without these keys."""
        content = self
        for key in (key for key in keys if key in self):
            above, _, name = key.rpartition(".")
            table = {**(content.table(above) if above else content.data)}
            del table[name]
            content = replace(content, data={**content.data, above: table} if above else table)
        return content

    def over(self, key: str, table: Mapping[str, Any], place: str) -> Content:
        """Return a copy with the entries of `table`, given at `place`, in the table of `key`."""
        content = self
        for name, value in table.items():
            content = content.set(f"{key}.{name}", value, f"{place}.{name}")
        return content

    def check_keys(self, allowed: Sequence[str], key: str = "") -> None:
        """Raise BadInput on the first key of a table that is not allowed; name the nearest."""
        table = self.table(key) if key else self.data
        only_keys(table, allowed, self.where(key) if key else self.file)

    def values(self, key: str, default: Any) -> list[Any]:
        """List the values of a key, or its one value. Raises BadInput on a repeated one or none."""
        value = self.get(key, default)
        values = [*value] if isinstance(value, list | tuple) else [value]
        check_once([str(part) for part in values], self.where(key))
        if not values:
            raise BadInput(f"{self.where(key)}: at least one value is needed")
        return values

    def text(self, key: str, default: str) -> str:
        """Return the text of a key. Raises BadInput."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise BadInput(f"{self.where(key)}: {value!r} is not allowed; it takes text")
        return value

    def tables(self, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each table of a list of tables, with its place. Raises BadInput."""
        listed = self.get(key)
        if listed == []:
            raise BadInput(f"{self.where(key)}: at least one is needed")
        if not isinstance(listed, list) or not all(isinstance(part, Mapping) for part in listed):
            raise BadInput(f"{self.where(key)} must be tables, as [[{key}]]")
        for number, table in enumerate(listed, 1):
            yield f"{self.file}: {key}[{number}]", table


def check_once(names: Sequence[str], where: str) -> None:
    """Raise BadInput where a name is given twice."""
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{where}: {name} is given twice")
