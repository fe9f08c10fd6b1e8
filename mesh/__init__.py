"""The node: wiring, REST, CLI, metrics, configuration."""

if __name__ != "hailmesh.mesh":
    raise ImportError("import hailmesh.mesh, not the bare folder name 'mesh'")
