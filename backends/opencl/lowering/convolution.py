LOWERINGS: dict[str, object] = {}
