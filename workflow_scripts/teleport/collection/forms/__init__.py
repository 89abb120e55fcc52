"""The forms that a collection can come in. The table in settings/forms.py names each of these modules on one line.

A form is one module with two names. `Settings` is a `settings.collection.Judged` with the literal `source`. `read` is a
function of these settings and of the job; it finds the files and returns a `records.Source` of rows that are not read
yet, passages apart from the splits. `build` reads the rows, checks them by one rule for all forms, and writes them.
"""
