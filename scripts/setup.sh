# Sourced by the other scripts: a Python of at least 3.11 and the project's own .venv with what the caller needs.
#     prepare EXTRA      installs lcb[EXTRA] into .venv, pinned by constraints.txt

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    printf 'no Python of at least 3.11 was found; install one, or name it: PYTHON=/path/to/python3.11 %s\n' "$0" >&2
    return 1
}

prepare() {
    local extra=$1 python stamp
    python=$(find_python)
    if [ ! -x .venv/bin/python ]; then
        printf 'making .venv with %s\n' "$("$python" --version)"
        "$python" -m venv .venv || {
            printf 'could not make .venv; on Debian and Ubuntu run first: apt-get install python3-venv\n' >&2
            rm -rf .venv
            return 1
        }
    fi
    stamp=.venv/.lcb-$extra
    if [ ! -f "$stamp" ] || [ constraints.txt -nt "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
        printf 'installing lcb[%s] (the first time takes a minute or two)\n' "$extra"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
            --editable ".[$extra]"
        touch "$stamp"
    fi
}
