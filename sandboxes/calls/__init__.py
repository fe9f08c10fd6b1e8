"""The logic of mesh_v1's calls, by what they are about. sandboxes/bridge.py lists them; mesh_v1.h says what
each does. A call gets the instance's Context and its arguments as unsigned words, returns a result >= 0, and
raises what goes wrong: the bridge makes an errno of it."""
