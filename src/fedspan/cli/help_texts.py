"""What ``fedspan COMMAND --help`` explains."""

from __future__ import annotations

EXAMPLE = """\
fedspan init north.csv south.csv west.csv     writes study.toml
  fedspan run study.toml                        trains, and writes the folder 'study'
  fedspan apply study new.csv --out scores.csv  writes a score for each row"""

DEMO = (
    "Do eight short runs on this machine, and write one page. Six have a picture, a number and ten lines of Python: "
    "a map, alarms, malicious sites, hidden groups, a killed run, and what the coordinator can rebuild. Two compare "
    "exact PCA with PCA of the pooled rows. Needs no files and no network, and takes some ten seconds."
)

RUN = """\
Run the study that a TOML file describes, on an embedded federation: one site per file, or per value of a site column.

A study:

    seed = 0                          # optional, default 0
    output = "results"                # optional, default: the study's name without .toml

    [data]                            # paths are relative to the study file
    file = "all.csv"                  # one table (CSV, JSON lines, Parquet, Feather, Excel or NPZ) with ...
    site_column = "hospital"          # ... a column that names each row's site
    # or one table per site:
    # sites = { north = "north.csv", south = "south.parquet", west = { file = "west.csv", separator = ";" } }
    # separator = ";"                 # how CSV files are written: the defaults are ",", ".", "utf-8"
    # decimal = ","
    # thousands = "."                 # between groups of three digits; beside decimal commas "." is the default
    # encoding = "cp1252"
    # missing = ["?", "-9"]           # words that mean a missing cell in every column, besides an empty one
    features = ["age", "dose"]        # optional, default: all columns but the named ones below
    drop = ["id"]                     # optional: columns to leave out
    label = "outcome"                 # optional: shown as colour in the report, not learned from
    # target = "dose"                 # what a regression learns to predict
    # task = "ward"                   # the task of each row, for few-shot learning

    [[preprocess]]                    # optional, any number, in order
    name = "FedStandardScaler"        # or "FedTabularEncoder", if some columns are text

    [model]
    name = "FedPCA"                   # any estimator; the other keys are its parameters
    n_components = 5

    [federation]                      # optional
    n_jobs = 1
    wire = false
    deadline = 60.0
    run_deadline = 86400.0            # seconds for a whole run
    quorum = "majority"               # or "all", a count (of fewer sites: all), a fraction

    [stream]                          # optional, for --partial
    # watermark = "time"              # a column that rises from row to row; default: new rows are at a table's end
    # half_life = "7d"                # or a number of rows: after it old rows count half; or decay = 0.9 a round
    # monitor = true                  # whether a detector's rows are watched for drift
    # alike = 20                      # rows that count as one there, if rows that follow one another are alike

    [report]                          # optional
    # judge = "test.csv"              # of a detector: labelled rows that it has not seen, for its ROC curve
    # label = "attack"                # the column of their labels ...
    # normal = "no"                   # ... and its value for normal rows
    # image = [28, 28]                # height and width, where a row is an image: components are drawn as images

With --kit there is no [data], n_jobs or wire: the data are where the sites of the federation have them.

An NPZ file holds X (rows x columns) and optionally feature_names, label and, in a file for all sites, site.

Written to the output folder: model.fedspan (and one file for each preprocessing step), report.html, summary.json,
and for each run its record (record.jsonl) and journal. A run that was interrupted continues with --resume.

With --partial the models learn on, and only from rows that are new at each site since its last accepted round; with
--every 1h a round is run every hour. A site that is offline, or whose file is missing, sends all that it has missed
when it is back. stream.json has the accepted round and each site's place, and drift.html what changed over time. After
a kill the same command continues. The sites of a kit take whole blocks of 20 rows, and their owners allow it by
transforms = ["fedspan", "sums.new_rows"] in site.toml.
"""

INIT = """\
Look at tables and write study.toml into this folder: how the files are written (separator, decimal point, encoding),
which columns are learned from and which look like identifiers, and a model that detects anomalies. It is commented:
change what does not fit. An existing study.toml is not replaced.
"""

CHECK = """\
Read a study and its tables, and print what would happen: sites and rows, columns with their kinds and missing cells,
words that are taken as missing, the steps of the models, what leaves each site, and how many bytes.

The models are fitted to made-up rows of the same shapes, at most a few hundred a site, so that bytes are estimates.
Nothing is written, and no true row is used in it.
"""

DESCRIBE = """\
Describe the data of a study before anything is learned, by sums: no row leaves its site. Printed are the columns with
counts, missing cells, means, deviations and quantiles, as pandas gives them for the pooled rows, and the sites that
differ from the rest. The page has histograms, correlations, and with --by a table of groups with tests. --crosstab,
--histogram and --pairs print one table each, in a run of its own.

Counts of few rows are suppressed. In the study file, optional:

    [describe]
    by = "sex"                        # a column of groups, or "site"
    categorical = ["ward"]            # columns of text; default: those that hold names
    categories = { sex = ["f", "m"] } # their names, which no site then sends; needed with secure sums
    max_categories = 12               # names that are listed of a column
    bins = 20                         # of a histogram
    least_set = 5                     # the fewest rows of a count
"""

APPLY = """\
Apply a trained model to new rows, and write one line per row: of a detector the score (higher is more unusual), whether
it is an alarm (true or false), and the features with the largest shares of the score; of the others the cluster, the
components, the position on the map or the prediction, with the probability of each class if it is one.

Columns are matched by name, whatever their order, and others are ignored. A CSV file is read and written as those of
the study are: with its separator, decimal point and encoding.

Where a model differs by site (FedComBat, a threshold or a regression for each site), the site of a row is in the
study's site column, or --site names that of all rows.
"""

GATEWAY = """\
Score rows as they come, and write a line of JSON for each that is above the threshold: the number of its line, score,
threshold, and the features with the largest shares. Rows are JSON lines, objects with a number for each column of the
model, or CSV whose first line names its columns. It needs numpy alone, and less than 60 MB of memory.

With --state a kill at any moment loses and doubles no row: started again, it goes on at the place that was kept. Alarms
in a file that are behind that place are cut off, and written again. Standard input must then be sent from its start."""
REPORT = (
    "Write the report of a run again: from its folder (settings, sites, failures and their reasons, rounds and bytes, "
    "the models' pictures, privacy, versions, how to run it again), also of a run that was stopped or fetched; or from "
    "a saved model. It has what [report] in its study.toml requests."
)

AUDIT = """\
Attack what the coordinator of a run received, and report what an attacker can rebuild of the rows.

Distances to landmarks, which sites post for maps and clusterings, are turned back into rows (trilateration, with and
without public rows of the same kind, and as if the sites had turned their rows by a secret rotation). Rebuilt rows are
measured against the true ones: those of the study if its files still exist, or those of --truth.

With the true rows all messages in the run's journals are searched for them, too, whatever protocol sent them: as they
are, scaled, rounded, in low bits, as differences of sums, as cells of text. The card lists the searches.

--of METHOD attacks a published method instead, and shows a repaired form beside it. It writes nothing.

Written to the output folder, for its owner alone: leaks.html, with rebuilt rows beside true ones, and leaks.json.
They are as private as the rows.
"""

FEDERATION_INIT = """\
Make the authority of a federation: the key that approves participants, and the list of them that it signs.

fed.toml:

    name = "hospitals"
    server = "fl.example.org:8002"      # where the coordinator listens: the one port of the federation
    sites = ["north", "south", "west"]

    [users]                             # the role of each user
    alice = "analyst"                   # runs studies
    bob = "viewer"                      # sees which sites are online
    olga = "operator"                   # disables sites, cancels studies

    [schema]                            # optional: the columns of all sites, in the order of the studies
    age = "integer"                     # boolean, integer, number, text, time or duration

Keep the authority's folder to yourself: its key makes participants. Each participant makes its own key ('fedspan site
enroll'), and 'fedspan federation approve' signs it. Run init again after a change of fed.toml: it never makes a second
identity for a name. With --kits all kits are made here, for a trial on one machine.
"""

APPROVE = """\
Approve requests to take part, made by 'fedspan site enroll', 'user enroll' and 'coordinator enroll', and sign the next
list of participants. Compare the digest of each key with the one that the participant reads out to you.

A name has one identity. --replace gives it the key of the request, and revokes the previous one, within seconds and
without a restart of the others.
"""

FEDERATION_DEMO = (
    "Start a coordinator and three sites on this machine, run a study at them, compare, and stop them. Exit code 1 if "
    "the result is not the embedded engine's, byte for byte."
)

SITE_CHECK = """\
Check a site's file and its data, without joining a federation.

Prints the columns with their kinds and their numbers of missing cells (no values), differences from the schema (with
--kit, also from the federation's), the rules in words, the budget, the log, and the steps that the rules allow. Writes
nothing. Ends with one sentence for each problem and exit code 1, or with exit code 0.
"""

DOCTOR = """\
Check what a coordinator, a site or a user needs to take part: versions, certificate, clock, disk, the coordinator's
port, and of a site its file, database driver, data, audit log, decisions and ledger. Each problem is one sentence with
its remedy. Exit code 1 if there is one.
"""

LOGS = """\
Print the log of a kit's own process, coordinator or site; or of a detached study: with a user's kit from the
coordinator, with the coordinator's kit from its disk. There are no data in them.
"""

BACKUP = """\
Write the kit of a coordinator, a site or a user to one file of mode 0600: keys, runs, studies. Of a site also the
owner's file, audit log, decisions, served rows' digests and ledger. The data themselves are not in it. It holds private
keys: keep it like the kit. Stop the process first, or use what a copy of a running one gives: files are append-only.
"""

RESTORE = """\
Write what a backup holds into a new folder: 'kit', and of a site 'owner'. A restored ledger may lack charges that were
made after the backup. It refuses every charge until its owner runs 'fedspan site confirm-ledger site.toml'.
"""

SITE_STUDIES = """\
Print the studies that wait for your approval: who proposes each, what it computes, what leaves the site, how often at
most, and what it costs of the privacy budget. Then the runs that go on, with what has left so far.

With approval = "required" under [rules], nothing runs that was not approved. An approval covers the study's steps,
parameters and numbers of calls, and nothing else. 'fedspan site start --console' shows the same on a page.
"""

LOG = """\
Verify a site's audit log, and sum it up: by user, the calls that were answered, refused and failed, and the bytes that
left the site. Ends with exit code 1 if a line was altered or removed.

The last line's digest is printed. Keep it elsewhere: with --last, it shows whether lines were removed from the end.
"""
