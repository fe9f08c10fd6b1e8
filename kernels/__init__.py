"""Mathematics behind the bridge: graphs, sequences, named kernels."""

if __name__ != "hailmesh.kernels":
    raise ImportError("import hailmesh.kernels, not the bare folder name 'kernels'")
