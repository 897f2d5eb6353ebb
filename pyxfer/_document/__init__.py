"""The structs of every document, and their JSON, schemas and files.

A module imports only modules above it in this list, with two exceptions. The structs' methods `save` and `load` import
the codec when they are called; those of `printing` import the pages, exports and charts, which are in `pyxfer._report`.

- `intervals`: the rule for the interval of a median
- `printing`: the methods by which documents show themselves
- `remark_codes`: the codes of remarks, with their severities and meanings
- `checks`: with what each kind writes the limits of its figures
- `machines`: a device, its link and its environment
- `runs`: measurements and the run that contains them
- `routes`: routes and frameworks, and whether they are available
- `tunings`: the settings of a ring and the trials behind them
- `blocks`: how long each method takes to move blocks, for a server to read
- `offloads`: whether moving blocks pays, and the blocks of models
- `watches`: recorded windows of a user's program
- `links`: every link of a host, alone and together
- `cells`: what is measured again and again, and its text
- `baselines`: baselines, comparisons and histories
- `examinations`: findings of the doctor about a host
- `sessions`: measurements of a pytest session
- `fleets`: one host of a fleet, and the verdicts on all of them
- `files`: writing a file completely or not at all
- `derivations`: figures that do not follow from the others
- `codec`: encoding, decoding, saving, loading and schemas of every kind
"""
