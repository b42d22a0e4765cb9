"""all_to_all.py DPTK_RUN PROGRAM: PyTorch's all_to_all_single over Gloo receives the same bytes as dptk's all_to_all with
different counts (see all_to_all.cpp), on 2 to 5 ranks and in each element type that PyTorch sends."""

import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TYPES = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
         "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def count(sender, receiver):
    return (3 * sender + 5 * receiver) % 4


def bytes_of(tensor):
    return bytes(tensor.view(torch.uint8).tolist()) if tensor.numel() else b""


def receive(rank, ranks, dtype):
    sent = torch.tensor([(50 * rank + 10 * other + i) % 100
                         for other in range(ranks) for i in range(count(rank, other))]).to(dtype)
    splits = [count(rank, other) for other in range(ranks)]
    output_splits = [count(other, rank) for other in range(ranks)]
    received = torch.empty(sum(output_splits), dtype=dtype)
    dist.all_to_all_single(received, sent, output_splits, splits)
    return received


def work(rank, ranks, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    differences, compared = 0, 0
    for name, dtype in TYPES.items():
        try:
            received = receive(rank, ranks, dtype)
        except RuntimeError as error:
            if "type" not in str(error):
                raise
            continue  # PyTorch does not send this type over Gloo
        with open(f"{folder}/{name}.{rank}", "rb") as file:
            differences += file.read() != bytes_of(received)
        compared += 1
    total = torch.tensor([differences])
    dist.all_reduce(total)
    if rank == 0:
        print(f"{ranks} ranks, {compared} types: {total.item()} differences", flush=True)
    dist.destroy_process_group()
    if total.item() != 0 or compared < 5:
        sys.exit(1)


if __name__ == "__main__":
    for ranks in range(2, 6):
        with tempfile.TemporaryDirectory(prefix="dptk-torch-") as folder:
            subprocess.run([*sys.argv[1:2], "--nproc-per-node", str(ranks), "--", sys.argv[2], folder], check=True)
            mp.spawn(work, args=(ranks, folder), nprocs=ranks)
