"""Analyses for one table or figure of one paper, besides measures: one module each, a stage that nothing else reads.

errors: top-K errors of exact ranks (STAR and ADORE, Table 1). contrast: two runs of a split (ANCE, Tables 6, 8 and 9).
negatives_overlap: a pool against the checkpoint that was trained on it (ANCE, Section 6.3). forgetting: the training
queries that an episode loses (ANCE-Tele, Table 9). `plan/analyses.py` plans them where `evaluation.analyses` asks.
"""
