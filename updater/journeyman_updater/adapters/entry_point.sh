#!/bin/sh
# The entry point of a release, bin/journeyman: runs it with a Python that it supports.
# The one recorded in JOURNEYMAN_PYTHON comes first, then the usual names in the usual places.
self=$0
while [ -L "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=${self%/*}/$link ;;
    esac
done
tree=$(cd "${self%/*}/.." && pwd -P) || exit 71

# run PYTHON VERSION ARGUMENT...
run() {
    python=$1 version=$2
    shift 2
    unset PYTHONHOME
    # The tree must stay as it was signed, so no Python may write its bytecode there.  lib/ brings the bytecode
    # of @COMPILED@; another Python keeps its own in the user's cache, and does without where there is no home.
    if [ "$version" != @COMPILED@ ] && [ -n "${HOME:-}" ]; then
        export PYTHONPYCACHEPREFIX="${XDG_CACHE_HOME:-$HOME/.cache}/journeyman/bytecode"
    else
        export PYTHONDONTWRITEBYTECODE=1
    fi
    # -P keeps the current folder out of the import path, -S whatever is installed on this host.  By its file,
    # as -m loads a tenth more of what `lane run` needs.
    PYTHONPATH=$tree/lib exec "$python" -S -P "$tree/lib/journeyman/__main__.py" "$@"
}

if [ -n "${JOURNEYMAN_PYTHON:-}" ]; then
    version=$("$JOURNEYMAN_PYTHON" -ISc 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    case " @SUPPORTED@ " in
        *" ${version:-none} "*) run "$JOURNEYMAN_PYTHON" "$version" "$@" ;;
    esac
fi

# Service managers hand over a short PATH.
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin:/Library/Frameworks/Python.framework/Versions/Current/bin
for version in @SUPPORTED@; do
    command -v "python$version" >/dev/null 2>&1 && run "python$version" "$version" "$@"
done
echo "journeyman: none of the Pythons @SUPPORTED@ was found on this host" >&2
echo "  Install one, or name it in JOURNEYMAN_PYTHON." >&2
exit 71
