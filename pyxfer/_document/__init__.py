"""The structs of every document, and their JSON, CSV, Markdown, schemas and files.

A module imports only modules above it in this list, with two exceptions. The structs' methods `save`, `load`, `to_csv`,
`to_markdown` and `table` import the codec, the exports or the tables when they are called; those of `printing` import
the pages.

- `intervals`: the rule for the interval of a median
- `printing`: documents as one line, as their page and as a small table
- `machines`: a device, its link and its environment
- `runs`: measurements and the run that contains them
- `tunings`: the settings of a ring and the trials behind them
- `watches`: recorded windows of a user's program
- `links`: every link of a host, alone and together
- `cells`: what is measured again and again, and its text
- `baselines`: baselines, comparisons and histories
- `examinations`: findings of the doctor about a host
- `sessions`: measurements of a pytest session
- `fleets`: one host of a fleet, and the verdicts on all of them
- `link_wording`: sentences about links
- `files`: writing a file completely or not at all
- `wording`: sentences that exports and terminal pages share
- `exports`: CSV and Markdown
- `link_exports`: CSV and Markdown of links
- `tables`: rows for pandas, polars, pyarrow and DuckDB
- `derivations`: figures that do not follow from the others
- `checks`: limits of the figures of runs and comparisons
- `link_checks`: limits of the figures of links
- `fleet_checks`: limits of the figures of hosts and fleets
- `codec`: encoding, decoding, saving, loading and schemas of every kind
- `__main__`: prints the schema of a kind
"""
