"""Descriptions of devices, one TOML file each (see `polyhal.backends.opencl.described.description`)."""
