"""Profiles of simulated devices, one TOML file each. `polyhal.backends.sim.profile` reads them and documents the fields."""
