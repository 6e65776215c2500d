"""Memory of devices: buffers, the pool they come from, and streams."""
