"""Sites on other machines: signed messages, the coordinator that sends them, and the site that answers.

- `messages`: identities, signatures, the head of a request, and the interface of a transport, which carries bytes
- `coordinator`: the federation and engine that protocols run on, the directory of sites, which sites are offline
- `site`: the worker that answers requests, and the site's disk
"""
