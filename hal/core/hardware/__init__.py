"""The catalogue of hardware: one TOML file per card, read by described and simulated devices and by forecasts."""
