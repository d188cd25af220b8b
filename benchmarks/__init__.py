"""Speed and quality, measured against what one would otherwise use, in the same run.

A module here with a function ``compare()`` belongs to the battery, which ``make bench`` runs in one go: it yields a
`benchmarks.battery.ratio.Ratio` for every peer. One with a function ``main()`` is a longer measurement, which is run by
its name. A module may have both. See `benchmarks.battery.running` for how they are run.
"""
