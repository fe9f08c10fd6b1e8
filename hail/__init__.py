"""HAIL, the hardware abstraction and interconnect layer: memory, devices, lanes, rings."""

if __name__ != "hailmesh.hail":
    raise ImportError("import hailmesh.hail, not the bare folder name 'hail'")
