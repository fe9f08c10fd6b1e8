"""Modality images: layout, store, unit description, converters of the reference units."""

if __name__ != "hailmesh.oci":
    raise ImportError("import hailmesh.oci, not the bare folder name 'oci'")
