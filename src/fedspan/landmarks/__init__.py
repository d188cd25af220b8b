"""FedDL: landmarks that follow the distribution of rows, and distances of rows to them."""
