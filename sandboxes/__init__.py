"""EUP, the execution unit pool: wasm engine, unit ABI, host-call bridge, pool, guests."""

if __name__ != "hailmesh.sandboxes":
    raise ImportError("import hailmesh.sandboxes, not the bare folder name 'sandboxes'")
