"""States of a student: every round releases the direction in which the teachers would move it."""
