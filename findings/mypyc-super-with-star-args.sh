#!/usr/bin/env bash
# mypyc hands the whole tuple of *args to a method that is called on super().
#
# Compiled by mypyc 2.4.1, `super().__init__(*args)` is no longer what Python makes of it: each
# parameter of the method gets the tuple itself, and **more is left out, so that
# `super().__init__(*args, **more)` with a keyword alone gives the parameter an empty tuple. Nothing
# says so, neither mypy nor mypyc, and nothing is raised where the parameters are of type Any. The
# same call by the name of the class, and of a function, is compiled as Python has it.
# Met while compiling a coordinator of KV caches whose kinds pass their arguments on to their base:
# there a parameter with a type raised "KVCacheConfig object expected; got tuple[<11 items>]". In 2021
# the same call ended mypyc with an error: https://github.com/mypyc/mypyc/issues/858
#
# Installs mypy 2.4.1 and setuptools 80.9.0 in a temporary folder; needs a C compiler and Python's
# headers. Ends with 0 while the behaviour is as said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mypy==2.4.1 setuptools==80.9.0
cat > "$folder/passing.py" <<'PYTHON'
from typing import Any


class Pair:
    def __init__(self, left: Any, right: Any = None) -> None:
        self.both = left, right

    def put(self, what: Any) -> Any:
        return what


class ByInit(Pair):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)


class ByName(Pair):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)


class ByMethod(Pair):
    def put(self, *args: Any) -> Any:
        return super().put(*args)

    def by_class(self, *args: Any) -> Any:
        return Pair.put(self, *args)
PYTHON
cat > "$folder/ask.py" <<'PYTHON'
import passing

print("super().__init__(*args):", passing.ByInit(1, 2).both)
print("super().__init__(*args, **more):", passing.ByName(left=1).both)
print("super().put(*args):", passing.ByMethod(0).put(1))
print("Pair.put(self, *args):", passing.ByMethod(0).by_class(1))
PYTHON
cd "$folder"
interpreted=$(venv/bin/python ask.py)
venv/bin/python -m mypyc passing.py > build.log 2>&1 || { cat build.log >&2; exit 1; }
compiled=$(venv/bin/python ask.py)
printf 'interpreted\n%s\ncompiled\n%s\n' "$interpreted" "$compiled"
right="super().__init__(*args): (1, 2)
super().__init__(*args, **more): (1, None)
super().put(*args): 1
Pair.put(self, *args): 1"
wrong="super().__init__(*args): ((1, 2), (1, 2))
super().__init__(*args, **more): ((), ())
super().put(*args): (1,)
Pair.put(self, *args): 1"
if [ "$interpreted" != "$right" ] || [ "$compiled" != "$wrong" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
echo "as said: mypy 2.4.1"
