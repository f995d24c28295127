"""How a run about attributes is read."""

from tutelage.tasks.reading import Reading
from tutelage.tasks.scores import Score

READING = Reading(answers="attributes.npz", sealed={"attributes": (Score.ONE_TEACHER,)}, measure="agreement")
