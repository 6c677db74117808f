#!/usr/bin/env bash
# A condition of one number that meets a block is no mask any more in Triton's interpreter.
#
# Kernels often guard a load by a block's own condition and one of the whole program, such as
# (place < count) & (length > 0). Compiled, both are one bit wide. In the interpreter of 3.9.0
# (TRITON_INTERPRET=1) the second becomes a block of 32-bit integers when it is spread over the
# first, `&` keeps these, and the masked load refuses them: "mask has unsupported dtype". Its type,
# when the kernel prints it, is int1 all the while. Kernels whose masks are made of blocks alone run.
# Seen with vLLM's prompt lookup of its second model runner, whose masks are such.
#
# Installs triton 3.9.0 and torch 2.13.0 in a temporary folder (2 GB where the index has
# CUDA builds of torch alone). Ends with 0 while the behaviour is as said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy
"$folder/venv/bin/pip" install --quiet --no-deps triton==3.9.0
cat > "$folder/masks.py" <<'PYTHON'
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(rows, length, out, of_blocks: tl.constexpr):
    place = tl.arange(0, 4)
    whole = tl.load(length) > 0
    spread = (place * 0 + tl.load(length)) > 0
    mask = (place < 3) & (spread if of_blocks else whole)
    print("mask:", mask.dtype, "in memory:", mask.handle.data.dtype)
    tl.store(out + place, tl.load(rows + place, mask=mask, other=-1))


for of_blocks in (True, False):
    out = torch.zeros(4, dtype=torch.int32)
    try:
        kernel[(1,)](torch.arange(4, dtype=torch.int32), torch.tensor([2], dtype=torch.int32), out, of_blocks)
        print("loaded:", out.tolist())
    except Exception as error:
        print("refused:", error)
PYTHON
said=$(cd "$folder" && TRITON_INTERPRET=1 venv/bin/python masks.py)
echo "$said"
expected="mask: int1 in memory: bool
loaded: [0, 1, 2, -1]
mask: int1 in memory: int32
refused: ValueError('mask has unsupported dtype')"
if [ "$said" != "$expected" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
echo "as said: triton 3.9.0"
