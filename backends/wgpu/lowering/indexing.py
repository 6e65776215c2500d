LOWERINGS = {}
build = batched = gather = scatter_add = None
