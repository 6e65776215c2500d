"""What the simulated devices are: one TOML file each. `polyhal.backends.sim.profile` reads them and says what a field means."""
