"""A table with words, gaps and patients, from Python: python examples/made.py table clinic; python examples/table.py"""

import tutelage as tt

schema = tt.TableSchema.of(
    {  # declared, public, and never read off private rows: what lies outside a range is cut, other words are one code
        "age": {"low": 0, "high": 100},
        "sex": {"categories": ["f", "m"]},
        "smoker": {"categories": ["no", "yes"]},
        "marker": {"low": 0, "high": 10},
    },
    label="diagnosis", classes=["healthy", "sick"], id="patient")  # fmt: skip
private = tt.Private.from_csv("clinic/private.csv", schema, unit="patient")
public, test = (tt.Public.from_csv(f"clinic/{name}.csv", schema) for name in ("public", "test"))
outcome = tt.transfer(
    private, public, test=test, out="runs/table", resume=True,
    teachers=tt.EstimatorTeachers("forest"), student=lambda: tt.SupervisedStudent("forest"), codec=tt.Votes(2),
    budget=tt.Budget(epsilon=8, delta=1e-5, unit=tt.Unit("patient")), shards=60, queries=100)  # fmt: skip
tt.report(outcome.folder, name="A table")
print(outcome.guarantee["statement"])
print({name: round(score, 3) for name, score in outcome.scores.items()})
model = tt.load("runs/table")
print(model.predict({"age": [30, 80], "sex": ["f", None], "smoker": ["no", "yes"], "marker": [4.0, 9.5]}))
