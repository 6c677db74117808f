#!/usr/bin/env bash
# mypyc cannot compile a method that has a keyword-only float with a default and **kwargs.
#
# For a float that may be left out, mypyc 2.4.1 appends a hidden argument of bits, since no float is
# left that could say so itself. When it then writes the method's signature down as text, that
# argument comes without a default behind the others, and building ends in a ValueError of `inspect`
# that names neither the method nor the file. With an int in the place of the float, or without
# **kwargs, the same method is compiled. mypy itself has nothing to say of any of them.
# Met while compiling a request whose `arrival_time: float = 0.0` stands before **kwargs.
#
# Installs mypy 2.4.1 and setuptools 80.9.0 in a temporary folder; no C compiler is needed, since it
# ends before. Ends with 0 while the behaviour is as said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mypy==2.4.1 setuptools==80.9.0
cat > "$folder/build_all.py" <<'PYTHON'
from mypyc.build import mypycify

METHODS = {
    "float": "self, *, at: float = 0.0, **more: object",
    "int": "self, *, at: int = 0, **more: object",
    "alone": "self, *, at: float = 0.0",
}
for name, arguments in METHODS.items():
    with open(f"{name}_case.py", "w") as file:
        file.write(f"class Request:\n    def add({arguments}) -> None:\n        pass\n")
    try:
        mypycify([f"{name}_case.py"])
        print(f"{name}: C code is made")
    except ValueError as error:
        print(f"{name}: ValueError: {error}")
PYTHON
said=$(cd "$folder" && venv/bin/python build_all.py)
echo "$said"
expected="float: ValueError: non-default argument follows default argument
int: C code is made
alone: C code is made"
if [ "$said" != "$expected" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
echo "as said: mypy 2.4.1"
