"""A person's own pairs as `teleport new` takes them: questions and passages in one table, in any usual form.

A form is a module with a NAME for sentences, BY_ORDER (may the order of columns decide their roles?) and `rows(path,
wrong)`. That yields (place in the file, record), where a record is {column: value}, and calls `wrong(place, problem)`
for any other content. `find` finds the files and their form, `columns` decides the role of each column, `texts` reads a
folder of texts, `convert` writes the collection. FROM is only read.
"""
