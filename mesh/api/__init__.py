"""REST: HTTP in, requests to the node, answers in the shape each client family knows."""
