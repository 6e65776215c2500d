"""Descriptions of devices that need not be here, a TOML file each (see `polyhal.backends.opencl.described.description`)."""
