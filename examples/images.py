"""Images in class folders, from Python: python examples/made.py images clinic; python examples/images.py"""

import numpy as np

import tutelage as tt

shown = {"classes": ("lying", "standing"), "size": (16, 16), "channels": 1}  # declared, and public from then on
private = tt.Private.from_folder("clinic/private", **shown)
public, test = (tt.Public.from_folder(f"clinic/{name}", **shown) for name in ("public", "test"))
public = public[np.random.default_rng(0).permutation(len(public))]  # the first ones are asked about, and files lie class by class
outcome = tt.transfer(
    private, public, test=test, out="runs/images", resume=True,
    teachers=tt.EstimatorTeachers("kernel"), student=tt.SpreadingStudent, codec=tt.Votes(2),
    budget=tt.Budget(epsilon=8, delta=1e-5), shards=50, queries=100)  # fmt: skip
tt.report(outcome.folder, name="Images")
print(outcome.guarantee["statement"])
print({name: round(score, 3) for name, score in outcome.scores.items()})
print(tt.load("runs/images").predict(test.inputs[:5]))
