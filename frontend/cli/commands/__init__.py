"""One file per command. `polyhal.cli.app` lists them."""
