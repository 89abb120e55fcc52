"""Analyses that each reproduce a table or figure of a paper. Each is one module and a stage that no other stage reads.

errors: top-K errors of exact ranks (STAR and ADORE, Table 1). contrast: two runs of a split (ANCE, Tables 6, 8 and 9).
negatives_overlap: a pool against the checkpoint that was trained on it (ANCE, Section 6.3). forgetting: the training
queries that an episode forgets (ANCE-Tele, Table 9). `plan/analyses.py` plans them from `evaluation.analyses`.
"""
