"""Images, and where a model's visual tokens lie on them; nothing here runs a model."""
