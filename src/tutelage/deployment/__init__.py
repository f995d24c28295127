"""Models that leave: read a released student, write it for other runtimes with its preprocessing, predict from raw files.

Everything here reads `release/` alone: it post-processes what was released, and costs no privacy.
"""
