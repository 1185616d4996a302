"""Small files of measured batches for tests: what a known cost model says, with noise where it is wanted."""

from __future__ import annotations

import random
from pathlib import Path

from infermax_opt.core.exact import decimal_text
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel, prefill_work

#: Two lines that meet at 200 tokens.
COST = CostModel(
    [("0.016", "0.00003"), ("0.006", "0.00008")], ("0.0004", "1.5e-7"), ("0.0003", "2.4e-9"), "exact"
)
HEADER = "tokens,decode_requests,kv_read,prefill_chunks,seconds\n"
KINDS = ("decode", "prefill", "mixed")


def whole_batches(
    number: int, cost: CostModel = COST, *, noise: float = 0.0, seed: int = 0, kinds: tuple[str, ...] = KINDS
) -> str:
    """Rows of whole batches as `calibrate --for batches` reads them."""
    rng = random.Random(seed)
    lines = [HEADER]
    for index in range(number):
        kind = kinds[index % len(kinds)]
        decodes = 0 if kind == "prefill" else rng.randint(1, 400)
        read = sum(rng.randint(1, 2000) for _ in range(decodes))
        chunks = [
            (rng.randint(1, 600), rng.choice([0, rng.randint(1, 4000)])) for _ in range(rng.randint(1, 3))
        ]
        chunks = [] if kind == "decode" else chunks
        tokens = decodes + sum(chunk for chunk, _ in chunks)
        work = sum(prefill_work(cost.exact_attention, chunk, prefix) for chunk, prefix in chunks)
        behind = sum(prefix for _, prefix in chunks)
        ticks = cost.batch_ticks(BatchFeatures(tokens, decodes, read, len(chunks), work, behind))
        seconds = decimal_text(cost.to_seconds(ticks))
        if noise:
            seconds = f"{float(seconds) * (1 + rng.gauss(0, noise)):.9f}"
        written = " ".join(f"{chunk}@{prefix}" for chunk, prefix in chunks)
        lines.append(f"{tokens},{decodes},{read},{written},{seconds}\n")
    return "".join(lines)


def kernel_tables(folder: Path, *, per_token: float = 2.0, mixed: float = 1.0, behind: float = 0.0) -> Path:
    """A folder of kernel tables: times in us of one layer.

    An operator of 100 + `per_token` us a token, a layernorm of 1 us (twice a layer), an embedding of 50 us
    (once), a head of 10 us a sequence.
    Decodes take 4 + 0.01 us a KV token, prefills 6 + 0.0001 us a pair and `behind` us for each token that
    they come behind, and batches of both `mixed` times as long.
    """
    folder.mkdir(exist_ok=True)
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    dense = ["layer,tokens,time_us"]
    for n in sizes:
        dense += [f"proj,{n},{100 + per_token * n}", f"layernorm,{n},1", f"embedding,{n},50"]
    ends = ["layer,sequences,time_us", *(f"lm_head,{n},{10 * n}" for n in (1, 2, 4, 8))]
    attention = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    for count in (0, 1, 4, 8):
        for context in (16, 256, 1024) if count else (0,):
            for chunk in (0, 16, 64, 256):
                for prefix in (0, 128, 512) if chunk else (0,):
                    if count or chunk:
                        time = (4 + 0.01 * count * context) * (count > 0)
                        pairs = chunk * (2 * prefix + chunk)
                        time += (6 + 0.0001 * pairs + behind * prefix) * (chunk > 0)
                        time *= mixed if count and chunk else 1
                        attention.append(f"{chunk},{prefix},{count},{context},{time:.6f}")
    for name, lines in (("dense", dense), ("per_sequence", ends), ("attention", attention)):
        (folder / f"kernels_{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def vidur_profile(path: Path) -> Path:
    """A profile as Vidur's: nine operators of (1 + tokens / 100) ms a layer, an embedding of 2 ms."""
    operators = (
        "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
        "mlp_up_proj", "mlp_act", "mlp_down_proj", "add",
    )  # fmt: skip
    names = [f"time_stats.{name}.median" for name in (*operators, "emb")]
    lines = [",".join([*names, "num_tokens", "num_tensor_parallel_workers"])]
    for workers in (1, 2):
        for tokens in (1, 8, 64, 512, 1024):
            each = (1 + tokens / 100) / workers
            lines.append(",".join([*(f"{each:.6f}" for _ in operators), "2", str(tokens), str(workers)]))
    path.write_text("\n".join(lines) + "\n")
    return path
