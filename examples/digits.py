"""PATE on scikit-learn's digits, from private records to a verified release: python examples/digits.py"""

import tutelage as tt
from tutelage.data.digits import digits

private, public, test = digits()  # 1,000 private records, 400 public ones, 397 for testing
outcome = tt.transfer(
    private, public, test=test, out="runs/mine", resume=True,
    teachers=tt.EstimatorTeachers("kernel"), student=tt.SpreadingStudent, codec=tt.Votes(10),
    budget=tt.Budget(epsilon=8, delta=1e-5, unit="record"), shards=100, queries=200)  # fmt: skip
tt.report(outcome.folder, name="Digits")
print(outcome.guarantee["statement"])
print({name: round(score, 3) for name, score in outcome.scores.items()})
print(tt.verify(outcome.folder))
