"""Local pages for people without a shell: a site owner's, with decisions, and a coordinator's, for reading."""
