"""Writes the vectors in this folder, by running TRL's own lines: make.py WHEEL

`WHEEL` is trl-0.24.0-py3-none-any.whl (`pip download --no-deps trl==0.24.0`), the last version with a PPO trainer whose
lines stand here; the other trainers are those of the TRL that is installed (1.16.0). A trainer's loss is computed by its
own method, on log-probabilities that are given in place of a model's. What has no method of its own is cut out of the
source between two of its lines. Numbers are f64; a completion's tokens are one list, without padding.
"""

import inspect
import json
import random
import sys
import textwrap
import types
import zipfile
from collections import defaultdict
from pathlib import Path

import torch
from trl import DPOTrainer, GRPOTrainer, RLOOTrainer

HERE = Path(__file__).parent
PPO = "trl/trainer/ppo_trainer.py"


def lines_between(source, first, last, **names):
    """Runs the lines of `source` from the one that begins with `first` to the one before that with `last`."""
    lines = source.splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip().startswith(first))
    end = next(n for n, line in enumerate(lines) if n > start and line.strip().startswith(last))
    exec(textwrap.dedent("\n".join(lines[start:end])), names)  # noqa: S102
    return names


def padded(rows, fill=0.0):
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows], dtype=torch.float64)


def mask_of(rows):
    return padded([[1.0] * len(row) for row in rows])


def unpadded(tensor, rows):
    return [values[: len(row)] for values, row in zip(tensor.tolist(), rows)]


class Stand(types.SimpleNamespace):
    """What a trainer's loss asks of the trainer: `log_probs` in place of a model's."""

    def __init__(self, log_probs, **settings):
        same = types.SimpleNamespace(
            gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x, num_processes=1, device="cpu"
        )
        super().__init__(
            model=types.SimpleNamespace(training=True), accelerator=same, aux_loss_enabled=False, _metrics=defaultdict(lambda: defaultdict(list)),
            _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None), **settings,
        )


def draw(rng, lengths, low, high):
    return [[round(rng.uniform(low, high), 3) for _ in range(length)] for length in lengths]


def inputs_of(rows, **more):
    """Ids are not looked at."""
    mask = mask_of(rows)
    one = torch.ones(len(rows), 1, dtype=torch.long)
    return {"prompt_ids": one, "prompt_mask": one, "completion_ids": mask.long(), "completion_mask": mask, **more}


def gspo(rng):
    for loss_type, delta in [("grpo", None), ("bnpo", None), ("dr_grpo", None), ("grpo", 1.1)]:
        lengths = [3, 1, 5, 4]
        new = draw(rng, lengths, -3, -0.1)
        old = [[round(x + rng.uniform(-0.4, 0.4), 3) for x in row] for row in new]
        ref = [[round(x + rng.uniform(-0.3, 0.3), 3) for x in row] for row in new]
        advantages = [round(rng.uniform(-2, 2), 3) for _ in lengths]
        leaf = padded(new).requires_grad_()
        stand = Stand(
            leaf, importance_sampling_level="sequence", loss_type=loss_type, beta=0.05, epsilon_low=0.2, epsilon_high=0.3,
            args=types.SimpleNamespace(delta=delta, use_bias_correction_kl=False), top_entropy_quantile=1.0, max_completion_length=6,
            off_policy_mask_threshold=None, use_vllm=False, current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False,
        )
        given = inputs_of(new, advantages=torch.tensor(advantages, dtype=torch.float64), old_per_token_logps=padded(old), ref_per_token_logps=padded(ref))
        loss = GRPOTrainer._compute_loss(stand, None, given)
        loss.backward()
        settings = {
            "loss_type": loss_type, "beta": 0.05, "epsilon_low": 0.2, "epsilon_high": 0.3, "importance_sampling_level": "sequence",
            **({} if delta is None else {"delta": delta}),
        }
        yield {
            "settings": settings, "max_length": 6, "new": new, "old": old, "ref": ref,
            "advantages": [[a] * n for a, n in zip(advantages, lengths)], "loss": loss.item(), "gradient": unpadded(leaf.grad, new),
        }


def rloo(rng):
    """Advantages of R_k, and on-policy gradients; the loss is a sum over the tokens of a completion, a mean over these."""
    for size, groups in [(2, 3), (4, 2)]:
        rewards = torch.tensor([round(rng.uniform(-2, 3), 3) for _ in range(size * groups)], dtype=torch.float64)
        names = lines_between(
            inspect.getsource(RLOOTrainer), "scorable_counts =", "# Normalize advantages", torch=torch, num_generations=size,
            rewards=rewards, grouped_rewards=rewards.view(-1, size),
        )
        advantages = names["advantages"]
        lengths = [rng.randint(1, 5) for _ in range(size * groups)]
        new = draw(rng, lengths, -3, -0.1)
        leaf = padded(new).requires_grad_()
        given = inputs_of(new, advantages=advantages, old_logps=(padded(new) * mask_of(new)).sum(1))
        stand = Stand(leaf, epsilon_low=0.2, epsilon_high=0.2, router_aux_loss_coef=0.0)
        RLOOTrainer._compute_loss(stand, None, given).backward()
        yield {
            "num_generations": size, "rewards": rewards.tolist(), "advantages": advantages.tolist(), "new": new,
            "gradient": unpadded(leaf.grad, new),
        }


def dpo(rng):
    for beta, count in [(0.1, 1), (0.5, 3)]:
        lengths = [rng.randint(1, 5) for _ in range(2 * count)]  # the chosen, then the rejected
        new = draw(rng, lengths, -3, -0.1)
        ref = [[round(x + rng.uniform(-1, 1), 3) for x in row] for row in new]
        leaf = padded(new).requires_grad_()
        sums = (padded(ref) * mask_of(ref)).sum(1)
        completion = torch.cat([torch.zeros(len(new), 1), mask_of(new)], 1)  # behind a prompt of one token
        given = {
            "input_ids": completion.long(), "completion_mask": completion, "ref_chosen_logps": sums[:count], "ref_rejected_logps": sums[count:],
        }
        stand = Stand(leaf, ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl")
        # The method as far as the difference of the log-ratios; what follows the loss are figures of logits, which are not here.
        difference, loss_line = "delta_score = chosen_scores - rejected_scores", "-F.logsigmoid(self.beta * delta_score)"
        before, found, after = textwrap.dedent(inspect.getsource(DPOTrainer._compute_loss)).partition(difference)
        assert found and f"per_sequence_loss = {loss_line}" in after
        names = dict(sys.modules[DPOTrainer.__module__].__dict__)
        exec(f"{before}{difference}\n    return delta_score\n", names)  # noqa: S102
        delta = names["_compute_loss"](stand, lambda **_: types.SimpleNamespace(log_probs=leaf * mask_of(new)), given, False)
        loss = eval(loss_line, {"F": torch.nn.functional, "self": types.SimpleNamespace(beta=beta), "delta_score": delta}).mean()  # noqa: S307
        loss.backward()
        yield {
            "beta": beta, "chosen": new[:count], "rejected": new[count:], "ref_chosen": ref[:count], "ref_rejected": ref[count:],
            "margins": (beta * delta).tolist(), "loss": loss.item(), "gradient": unpadded(leaf.grad, new),
        }


def ppo(rng, source, core):
    """Advantages from returns R and values V, and both losses."""
    for gamma, lam, lengths in [(1.0, 0.95, [4, 4]), (1.0, 1.0, [3, 3, 3]), (0.9, 0.5, [5])]:
        returns, values = draw(rng, lengths, -1, 3), draw(rng, lengths, -1, 2)
        rewards = [[now - gamma * later for now, later in zip(row, [*row[1:], 0.0])] for row in returns]
        args = types.SimpleNamespace(gamma=gamma, lam=lam, cliprange=0.2, cliprange_value=0.2)
        none = torch.zeros(len(lengths), lengths[0], dtype=torch.bool)  # of padding: rows of equal length have none
        names = lines_between(
            source, "# 6. compute advantages", "empty_cache()", args=args, rewards=padded(rewards), values=padded(values),
            responses=padded(values), padding_mask=none, **core,
        )
        new = draw(rng, lengths, -3, -0.1)
        old = [[round(x + rng.uniform(-0.5, 0.5), 3) for x in row] for row in new]
        moved = [[round(x + rng.uniform(-0.5, 0.5), 3) for x in row] for row in values]
        policy, critic = padded(new).requires_grad_(), padded(moved).requires_grad_()
        losses = lines_between(
            source, "vpredclipped = torch.clamp(", "loss = pg_loss +", args=args, vpred=critic, new_logprobs=policy,
            mb_values=padded(values), mb_return=names["returns"], mb_logprobs=padded(old), mb_advantage=names["advantages"],
            padding_mask=none, padding_mask_p1=none, micro_batch_inds=slice(None), **core,
        )
        (losses["pg_loss"] + losses["vf_loss"]).backward()
        yield {
            "gamma": gamma, "lambda": lam, "returns": returns, "values": values, "advantages": names["advantages"].tolist(),
            "targets": names["returns"].tolist(), "new": new, "old": old, "epsilon": 0.2, "policy_loss": losses["pg_loss"].item(),
            "policy_gradient": policy.grad.tolist(), "moved_values": moved, "value_clip": 0.2, "value_loss": losses["vf_loss"].item(),
            "value_clipped": losses["vf_clipfrac"].item(), "value_gradient": critic.grad.tolist(),
        }


def main():
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        source = wheel.read(PPO).decode()
        core = {"torch": torch}
        tree = wheel.read("trl/trainer/utils.py").decode() + wheel.read("trl/core.py").decode()
    for name in ("masked_mean", "masked_var", "masked_whiten"):
        function = "def " + name + tree.split(f"def {name}", 1)[1].split("\ndef ", 1)[0].split("\nclass ", 1)[0].split("\n@", 1)[0]
        exec("from __future__ import annotations\n" + function, core)  # noqa: S102
    made_by = "make.py: TRL 1.16.0; PPO of TRL 0.24.0"
    for name, cases in [("gspo", gspo), ("rloo", rloo), ("dpo", dpo), ("ppo", lambda rng: ppo(rng, source, core))]:
        text = json.dumps({"made_by": made_by, "cases": list(cases(random.Random(name)))}, indent=1)
        (HERE / f"{name}.json").write_text(text + "\n")


main()
