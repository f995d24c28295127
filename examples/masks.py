"""Pictures with masks, from Python: python examples/made.py masks clinic; python examples/masks.py"""

import numpy as np

import tutelage as tt
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import VOLUMES
from tutelage.students.latent import Latent, LatentStudent
from tutelage.teachers.segmenter import Segmenter

size = (32, 32)  # declared, and public from then on
private = tt.Private.from_pairs("clinic/private", size=size)
public, test = (tt.Public.from_pairs(f"clinic/{name}", size=size) for name in ("public", "test"))
short = Training(steps=120, batch=8, rate=3e-3, augmentation=VOLUMES)
norm = float(np.sqrt(np.mean(public.targets.sum(axis=(1, 2)))))  # of public masks: never of private ones
outcome = tt.transfer(
    private, public, test=test, out="runs/masks", resume=True,
    teachers=Segmenter(UNet(shape=(1, *size), widths=(8, 16)), training=short),
    student=lambda: LatentStudent(UNet(shape=(1, *size), widths=(8, 16)), settings=Latent(begin=short, again=short, steps=100)),
    codec=Flips(DCT(size, 120, norm), np.zeros(size), norm), aggregation=tt.Aggregation("mean"),
    budget=tt.Budget(epsilon=8, delta=1e-5, unit=tt.Unit("patient")), shards=50, queries=24)  # fmt: skip
tt.report(outcome.folder, name="Masks")
print(outcome.guarantee["statement"])
print({name: round(score, 3) for name, score in outcome.scores.items()})
print(tt.load("runs/masks").predict(test.inputs[:3]).shape)
