"""Device adapters, one a file, found by file name."""

if __name__ != "hailmesh.hail.devices":
    raise ImportError("import hailmesh.hail.devices, not the bare folder name")
