"""Pictures of fitted models: each module draws one kind of model and registers its pictures (see `picture`)."""
