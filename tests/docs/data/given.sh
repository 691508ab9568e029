# What pages suppose without showing it; a block asks for it by the mark `first`.

# a_project FOLDER: a git checkout with src/ and a benchmark that prints a number.
a_project() {
    cp -r "$DOCS_DATA/project" "$1"
    git -C "$1" init --quiet
    git -C "$1" add .
    git -C "$1" -c user.name=someone -c user.email=someone@example.com commit --quiet -m "As found"
}

# a_run FOLDER: such a checkout with a run of one experiment, which was kept.
a_run() {
    a_project "$1"
    (
        cd "$1"
        command autoresearch run --adapter command --edit 'src/*.py' --measure 'python bench.py --seed {seed} --data {split}' \
            --metric latency_ms --unit ms --minimize --proposer search --no-confirm --quiet -n 1
    )
}

# a_prompt FOLDER: a checkout with a prompt and a program that scores it on one of two halves of some data.
a_prompt() {
    mkdir "$1"
    git -C "$1" init --quiet
    echo "Answer in one word. LENGTH = 3" >"$1/prompt.txt"
    cat >"$1/score.py" <<'END'
import random, sys
from pathlib import Path

luck = random.Random(" ".join(sys.argv[1:])).gauss(0, 0.01)
print(f"METRIC accuracy={0.5 + len(Path('prompt.txt').read_text()) / 1000 + luck:.4f}")
END
}

# a_loop FOLDER: a checkout that was set up for another tool, with .auto/measure.sh and .auto/prompt.md.
a_loop() {
    a_project "$1"
    mkdir "$1/.auto"
    printf '#!/bin/sh\nexec python bench.py\n' >"$1/.auto/measure.sh"
    chmod +x "$1/.auto/measure.sh"
    cat >"$1/.auto/prompt.md" <<'END'
# Make it answer sooner

## Metrics
- **Primary**: `latency_ms` (ms, lower is better)

## How to Run
`./.auto/measure.sh`

## Files in Scope
- `src/pool.py` - its constants

## Off Limits
- `bench.py`
END
}

# an_archive FILE: four past tests of headlines, in the columns of the Upworthy archive.
an_archive() {
    echo test_id,test_week,eyecatcher_id,headline,impressions,clicks >"$1"
    for number in 1 2 3 4; do
        cat >>"$1" <<END
t$number,201405,e,An ordinary headline,400$number,80
t$number,201405,e,Another one?,400$number,6$number
t$number,201405,e,You will never guess,400$number,300
END
    done
}

# a_test FILE: three days of two arms.
a_test() {
    cat >"$1" <<'END'
date,variant,exposures,conversions
2026-03-01,control,300,15
2026-03-01,b,300,24
2026-03-02,control,300,12
2026-03-02,b,300,22
2026-03-03,control,300,16
2026-03-03,b,300,25
END
}

# a_tour FOLDER: the README's adapter as an installed package, and a folder with what it improves.
a_tour() {
    mkdir -p tour-package "$1"
    cp "$REPOSITORY/tests/typing/api.py" tour-package/tour_adapter.py
    cat >tour-package/pyproject.toml <<'END'
[project]
name = "tour-adapter"
version = "1.0"

[project.entry-points."autoresearch.adapters"]
tour = "tour_adapter:create_adapter"

[tool.setuptools]
py-modules = ["tour_adapter"]
END
    pip install --quiet -e tour-package
    cp "$REPOSITORY/tests/typing/tour.py" "$1/tour.py"
    printf '[run]\nadapter = "tour"\n' >"$1/autoresearch.toml"
}

# an_example: the package with a proposer and a policy, installed.
an_example() {
    cp -r "$REPOSITORY/tests/e2e/example_plugin" .
    pip install --quiet -e example_plugin
}
