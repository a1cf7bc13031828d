"""Started by test_trl.py in two processes, which share a group of four completions."""

import sys

from accelerate.utils import gather_object
from test_trl import DEMO, Recording, by_hand, config, questions

import corver

trainer = Recording(
    DEMO, corver.Scorer(index="demo"), config(sys.argv[1], max_steps=1, per_device_train_batch_size=2, gradient_accumulation_steps=1),
    train_dataset=questions(4),
)
trainer.train()
((_, output, scores),) = trainer.outputs
everywhere = gather_object([score.returns for score in scores])
assert len(everywhere) == 4 and len(scores) == 2, (len(everywhere), len(scores))
first = 2 * trainer.accelerator.process_index
expected = by_hand(everywhere, 4)[first : first + 2]
for row, right in zip(output["advantages"].tolist(), expected, strict=True):
    assert all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(row, right)), (row, right)
    assert not any(row[len(right) :])
print("equal")
