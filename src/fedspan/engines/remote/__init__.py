"""Sites on other machines: what travels, how it is bound and signed, and what each side keeps."""
