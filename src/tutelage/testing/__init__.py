"""What plug-ins are tested with: an oracle in memory, and one suite per protocol. Nothing here keeps anything private."""

from tutelage.testing.oracle import MemoryOracle
from tutelage.testing.students import check_iterative_student, check_student
from tutelage.testing.tasks import check_task

__all__ = ["MemoryOracle", "check_iterative_student", "check_student", "check_task"]
