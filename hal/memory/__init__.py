"""Device memory: buffers, the pool, and streams."""
