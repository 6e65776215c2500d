"""Running captured graphs: who lies where in memory, which launches run in which order, and replaying them."""
