"""From an op and specs to something that runs: the steps of the resolution, and their explanation."""
