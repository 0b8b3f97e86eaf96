# Sourced by the other scripts: a Python of at least 3.11 and the project's own .venv with what the caller needs.
#     prepare EXTRA         installs lcb[EXTRA] into .venv, pinned by constraints.txt; what is imported is compiled then
#     system_packages       PostgreSQL, Chromium, Node.js, TypeScript and promtool for the tests: installed where that is allowed, else the line to run
#     find_postgres         prints the folder of initdb and pg_ctl
#     find_chromium         prints the browser
#     find_tool NAME        prints where a program is

# Some build machines forbid Python to keep the modules it compiles: every process then compiles all that it imports.
unset PYTHONDONTWRITEBYTECODE

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
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
            --constraint constraints.txt --editable ".[$extra]"
        touch "$stamp"
    fi
}

find_postgres() {
    local folder found=
    for folder in "$(dirname "$(readlink -f "$(command -v initdb)")")" $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V); do
        if [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ] && [ -x "$folder/createdb" ]; then found=$folder; fi
    done
    [ -n "$found" ] && printf '%s\n' "$found"
}

find_chromium() {
    command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome
}

# Without the windows of a desktop a page takes a quarter less CPU; not every distribution has it alone.
name_chromium() {
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
        printf 'chromium-headless-shell\n'
    else
        printf 'chromium\n'
    fi
}

find_tool() {
    command -v "$1"
}

# Debian's postgresql and prometheus also start services of their own, as they do for everyone; the tests never touch them.
system_packages() {
    local missing=() as_root=()
    find_postgres >/dev/null || missing+=(postgresql)
    find_chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    find_tool node >/dev/null || missing+=(nodejs)
    find_tool tsc >/dev/null || missing+=(node-typescript)
    find_tool promtool >/dev/null || missing+=(prometheus)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
    if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; then
        printf 'installing %s\n' "${missing[*]}"
        ${as_root[@]+"${as_root[@]}"} apt-get update -qq &&
            missing=("${missing[@]/#chromium/$(name_chromium)}") && # known after the update
            ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
                apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null && return 0
    fi
    printf 'the tests need %s; on Debian and Ubuntu run first: sudo apt-get install --no-install-recommends %s\n' \
        "${missing[*]}" "${missing[*]}" >&2
    return 1
}
