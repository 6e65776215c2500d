"""Cards, one TOML file each. `polyhal.hal.hardware.card_schema` documents their sections and keys."""
