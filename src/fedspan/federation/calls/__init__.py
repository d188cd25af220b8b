"""One call: what is sent, what comes back, and the attacks and faults that tests rehearse."""
