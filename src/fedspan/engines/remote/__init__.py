"""Sites on other machines: what travels, how it is bound and signed, and what each side keeps.

The way of a call, from the coordinator to a site and back:

- `federation`, `engine`: what a protocol runs on; who is asked, and what becomes of the answers
- `meeting`, `presence`: what sites say of themselves, who is away, and who is back
- `post`, `envelope`, `identity`, `delegation`: signed messages, and whose word counts
- `transport`: carries the bytes (one for each framework, in a folder of its own)
- `worker`, `call`, `asks`, `refusals`: the site's side, and what its owner's rules see (`ask`)
- `site_store`, `run_file`: the site's disk
- `introduction`: how sites come to know each other's keys, for secure sums
"""
