"""The forms that a collection can come in. The table `FORMS` in settings/registry.py has a line for each module.

A form is one module with three names. `Settings` is a `settings.collection.Judged` with the literal `source`. Its
`of_corpus` and `of_split` drop settings that the passages, or a split, do not depend on, so that one more split changes
no other stage's key. `corpus(settings, job)` locates the files of the passages and returns `records.Rows`.
`split(settings, name, job)` locates the files of one split and returns a `records.Split` of rows. The stages `corpus`
and `split` read the rows, check them by one rule for all forms, and write them.
"""
