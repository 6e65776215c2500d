"""Vendor profiles: defaults for the devices of one vendor and kind, a TOML file each, and their loader."""
