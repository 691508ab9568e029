#!/usr/bin/env bash
# Build the wheel from the source distribution, install it without extras into an empty environment, and use it from
# another folder: what works in the checkout may still be missing from what users install.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# must SENTENCE-PART... : the text in $said has every part; otherwise say what was printed and stop.
must() {
    local part
    for part in "$@"; do
        if [[ $said != *"$part"* ]]; then
            printf 'The installed command does not say %q. It says:\n%s\n' "$part" "$said" >&2
            exit 1
        fi
    done
}

# refused COMMAND... : it must exit 1 with a sentence and no traceback.
refused() {
    local code=0
    said=$("$@" 2>&1) || code=$?
    if ((code != 1)) || [[ $said == *Traceback* ]]; then
        printf '%s ended with %d instead of a sentence and 1:\n%s\n' "$*" "$code" "$said" >&2
        exit 1
    fi
}

echo "Wheel: building"
.venv/bin/python -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
wheel=$(echo "$work"/dist/*.whl)

echo "Wheel: installing $(basename "$wheel") without extras"
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$wheel"

cd "$work"
export HOME=$work/home XDG_CACHE_HOME=$work/home/cache PATH=$work/venv/bin:$PATH
unset ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN PYTHONPATH
mkdir -p "$HOME"

said=$(python -c 'import autoresearch, importlib.util as util; print(autoresearch.__file__, util.find_spec("torch"))')
must "$work/venv" " None"
said=$(autoresearch --version)
must "autoresearch $(basename "$wheel" | cut -d- -f2)"
said=$(autoresearch --help)
must run init status log show export adapters doctor
said=$(autoresearch adapters)
must ml

# Without torch the way out is a sentence that names the extra.
refused autoresearch run --adapter ml --experiments 1
must torch "autoresearch[ml]"
refused autoresearch init --adapter nothing "$work/elsewhere"
must "No adapter named 'nothing' is installed; found command, marketing, ml."

# The ledger's migrations and the graph work as installed: a whole run of an adapter of thirty lines.
mkdir tour
cp "$root/tests/typing/api.py" tour_adapter.py
cp "$root/tests/typing/tour.py" tour/
said=$(python -c '
import autoresearch, tour_adapter
result = autoresearch.run(tour_adapter.TourAdapter(), workspace="tour", proposer="search", experiments=2)
print(result.status.experiments, "experiments")')
must "2 experiments"
said=$(autoresearch log -w tour)
must "The artifact as found"
said=$(autoresearch report -w tour --output=-)
must "<!DOCTYPE html>" "believed gain"
# An author's first adapter: the commands and the test of docs/write-an-adapter.md, with what it says and nothing else.
mkdir author
cd author
python - "$root/docs/write-an-adapter.md" <<'END'
import pathlib, re, sys

page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
commands = [text for language, text in blocks if language == "bash" and "banner" in text]
(test,) = (text for language, text in blocks if "class TestBanner" in text)
first, *rest = commands
test = f"cat >banner/tests/test_shown.py <<'TEST'\n{test}TEST\n"
pathlib.Path("commands.sh").write_text("\n".join([first, test, *rest]), encoding="utf-8")
END
said=$(PIP_QUIET=1 bash -eu commands.sh 2>&1) || { printf '%s\n' "$said" >&2; exit 1; }
must "Next: pip install -e banner" "6 experiments:" " passed" "The contract is kept"
said=$(autoresearch adapters)
must "banner" "autoresearch-banner"
echo "Wheel: installs, explains itself, runs, and takes in an adapter"
