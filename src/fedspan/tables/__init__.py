"""Raw tables become numbers: scaling of columns, encoding of text."""
