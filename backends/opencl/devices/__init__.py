"""Descriptions of devices that need not be present, one TOML file each (see
`polyhal.backends.opencl.described.description`)."""
