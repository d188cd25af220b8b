"""Who takes part in a real federation: keys, certificates, and the list of participants that the authority signs."""
