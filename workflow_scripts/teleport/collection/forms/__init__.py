"""The forms that a collection can come in. The table in settings/forms.py names each of these modules on one line.

A form is one module with three names. `Settings` is a `settings.collection.Judged` with the literal `source`; its
`of_corpus` and `of_split` leave out what the passages, or a split, do not depend on, so that one more split changes the
key of no other stage. `corpus(settings, job)` finds the files of the passages and returns `records.Rows`;
`split(settings, name, job)` finds those of one split and returns a `records.Split` of rows. Nothing is read there: the
stages `corpus` and `split` read the rows, check them by one rule for all forms, and write them.
"""
