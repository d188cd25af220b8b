"""Commands for those who run a coordinator or a site: checks, backups, logs."""
