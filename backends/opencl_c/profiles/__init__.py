"""Vendor profiles: defaults for the devices of one vendor and kind, one TOML file each, and their loader."""
