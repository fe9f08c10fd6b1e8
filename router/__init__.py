"""MRL, the modality routing layer: requests, QoS, admission, arbitration, routes."""

if __name__ != "hailmesh.router":
    raise ImportError("import hailmesh.router, not the bare folder name 'router'")
