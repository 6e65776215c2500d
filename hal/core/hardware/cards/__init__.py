"""Cards, one TOML file each. `polyhal.hal.core.hardware.card_schema` documents their sections and keys."""
