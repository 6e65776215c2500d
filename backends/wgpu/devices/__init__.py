"""Described devices, one TOML file each: see `backends.wgpu.described.description`."""
