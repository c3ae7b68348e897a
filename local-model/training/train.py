"""Trains the model: `train.py --minutes 60 --out DIRECTORY [--continue-from DIRECTORY] [--seed 1]`."""

import argparse
import math
import pathlib
import random
import time

import torch
import torch.nn.functional as F

import batches
from evaluate import evaluate
from muon import Muon
from network import Network, load, save

MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
CONTINUED_SHARE = 0.5  # share of those rates if training starts from trained weights
WARM_UP_STEPS = 50
SECONDS_PER_CHECKPOINT = 300
SECONDS_PER_LINE = 30
CHECKED_EACH = 12  # held-out dialogues of each task, evaluated at every checkpoint


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="wall-clock time; the rate falls to zero over it")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--continue-from", type=pathlib.Path)
    parser.add_argument("--share", type=float, help="of the usual rates: 0.1 polishes trained weights in some minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    network = load(options.continue_from) if options.continue_from else Network()
    train(network, options)


def optimizers(network, share):
    """Returns Muon for the layers' matrices and Adam for the rest, with their initial rates."""
    matrices = [w for name, w in network.named_parameters() if w.dim() == 2 and "layers" in name]
    others = [w for name, w in network.named_parameters() if not (w.dim() == 2 and "layers" in name)]
    return [(Muon(matrices, lr=MATRIX_RATE * share), MATRIX_RATE * share),
            (torch.optim.AdamW(others, lr=OTHER_RATE * share, betas=(0.9, 0.95), weight_decay=0.0), OTHER_RATE * share)]


def train(network, options):
    usual = CONTINUED_SHARE if options.continue_from else 1
    both = optimizers(network, usual if options.share is None else options.share)
    started, step, seen, written, mean = time.time(), 0, 0, 0, None
    next_line, next_checkpoint = 0, SECONDS_PER_CHECKPOINT
    for tokens, masks in batches.training(random.Random(options.seed)):
        elapsed = time.time() - started
        done = elapsed / (options.minutes * 60)
        if done >= 1:
            break
        # A cosine from one to zero, after a short rise.
        share = min(1, (step + 1) / WARM_UP_STEPS) * (1 + math.cos(math.pi * done)) / 2
        loss = learn(network, both, share, tokens, masks)
        step, seen, written = step + 1, seen + tokens.numel(), written + int(masks.sum())
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        if elapsed > next_line:
            next_line += SECONDS_PER_LINE
            tokens_so_far = f"seen {seen / 1e6:.1f} M  written {written / 1e6:.2f} M"
            print(f"{elapsed:6.0f} s  step {step}  loss {mean:.4f}  {tokens_so_far}", flush=True)
        if elapsed > next_checkpoint:
            next_checkpoint += SECONDS_PER_CHECKPOINT
            save(network, options.out)
            report(network)
    save(network, options.out)
    print(f"done: {step} steps, {seen} tokens, of which the model writes {written}, loss {mean:.4f}")
    report(network)


def learn(network, both, share, tokens, masks):
    """Makes one step. Learns only what the assistant writes."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = network.scores(network(tokens[:, :-1])[masks[:, 1:]])
    loss = F.cross_entropy(scores.float(), tokens[:, 1:][masks[:, 1:]])
    loss.backward()
    for optimizer, rate in both:
        for group in optimizer.param_groups:
            group["lr"] = rate * share
    torch.nn.utils.clip_grad_norm_([w for group in both[1][0].param_groups for w in group["params"]], 1.0)
    for optimizer, _ in both:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def report(network):
    right, _ = evaluate(network, CHECKED_EACH)
    print(f"   held out, right of {CHECKED_EACH}:", right, flush=True)


if __name__ == "__main__":
    main()
