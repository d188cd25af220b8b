"""What the search for rows is made of: the forms that rows may take in messages, and the chance of a hit."""
