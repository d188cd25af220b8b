"""Sites on other machines, reached through NVIDIA FLARE: the only folder that imports it, and only when used.

- `setup`: kits for all participants, and the processes of a coordinator and of a site
- `client`: a user's connection through the hub at the server, the status of a federation, detached studies
- `server`: the hub that passes calls on, and the coordinator's queue of detached studies
- `site`: the site's worker process, and its link to the hub
"""
