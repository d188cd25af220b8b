"""A site's side: data, state, steps, transforms, and the host that runs calls."""
