"""Edge images: root file system, disk image, update bundle, flashing."""

if __name__ != "hailmesh.edge_images":
    raise ImportError("import hailmesh.edge_images, not the bare folder name 'edge_images'")
