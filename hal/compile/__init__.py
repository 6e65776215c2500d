"""From ops to programs of a device: graphs, planning, passes, capture, scheduling."""
