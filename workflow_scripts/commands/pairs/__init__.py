"""A person's own pairs as `teleport new` takes them: questions and passages in one table, in any usual form.

A form is a module with a NAME for sentences, BY_ORDER (may the order of columns decide what they are?) and `rows(path,
wrong)`. That yields (place in the file, record), where a record is {column: value}, and calls `wrong(place, problem)`
for what is no record. `find` finds the files and their form, `columns` decides what each column is, `texts` reads a
folder of texts, `convert` writes the collection. FROM is only read.
"""
