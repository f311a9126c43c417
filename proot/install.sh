#!/bin/sh
# Installs the Termux side of Journeyman: the service that keeps the guest, and the script for Termux:Boot.
# POSIX sh, as Termux has nothing else of ours: the agent and its libraries live in the guest.
set -u

usage() {
    cat <<'TEXT'
Usage: sh proot/install.sh [OPTION]...

Run it in Termux, not in the guest, once `journeyman install --service termux` has been run in the guest.
It installs one service for termux-services, which keeps the agent in the guest, runs its updater, reads the
battery for it and keeps the phone awake while work runs; and a script for Termux:Boot.  A second run changes
what differs and says so.

  --distro NAME          the guest, as proot-distro calls it (default: debian)
  --rootfs DIR           a guest of your own below DIR, kept by proot itself
  --root DIR             the state root, as the guest sees it (default: /root/.local/share/journeyman)
  --no-service           without termux-services: make the files, and say how to start them
  --every SECONDS        between two looks at the battery (default: 60)
  --answer-within SECONDS  for an answer of Termux:API (default: 8)
  --deadline SECONDS     for the agent's first heartbeat (default: 90)
  --dry-run              say what would be done, and touch nothing
  --uninstall            stop the service and remove what was made; the guest keeps its files
  --help                 this text

Example: sh proot/install.sh --distro debian

Exit codes: 0 it worked, 2 the command line is wrong, 71 something is missing here, 78 nothing to keep in the guest.
TEXT
}

say() { printf 'journeyman: %s\n' "$*"; }

# fail CODE WHAT ADVICE
fail() {
    printf 'journeyman: %s\n  %s\n' "$2" "$3" >&2
    exit "$1"
}

number() { case $2 in '' | *[!0-9]* | 0*) fail 2 "$1 takes a whole number of seconds, not '$2'" "See --help." ;; esac }

distro=debian rootfs='' root=/root/.local/share/journeyman service=yes dry='' action=install
every_seconds=60 answer_seconds=8 deadline=90 stop_seconds=30
guest_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
newline='
'
header='# Written by Journeyman and replaced by it.'

while [ $# -gt 0 ]; do
    case $1 in
    --distro | --rootfs | --root | --every | --answer-within | --deadline)
        [ $# -ge 2 ] || fail 2 "$1 needs a value" "See --help."
        ;;
    esac
    case $1 in
    --help | -h) usage && exit 0 ;;
    --dry-run) dry=yes ;;
    --uninstall) action=uninstall ;;
    --no-service) service='' ;;
    --distro) distro=$2 && shift ;;
    --rootfs) rootfs=$2 && shift ;;
    --root) root=$2 && shift ;;
    --every) number "$1" "$2" && every_seconds=$2 && shift ;;
    --answer-within) number "$1" "$2" && answer_seconds=$2 && shift ;;
    --deadline) number "$1" "$2" && deadline=$2 && shift ;;
    *) fail 2 "there is no option $1" "See --help." ;;
    esac
    shift
done

here=$(cd "$(dirname "$0")" && pwd) || exit 71
[ -n "${PREFIX:-}" ] && [ -d "${PREFIX:-}" ] && [ -n "${HOME:-}" ] ||
    fail 71 "this is not Termux: PREFIX names no folder" \
        "Run it in Termux, not in the guest.  In a container use: journeyman install --service none"
case $root in /*) ;; *) fail 2 "--root has to be an absolute path, as the guest sees it" "See --help." ;; esac

shell=$PREFIX/bin/sh
[ -x "$shell" ] || shell=/bin/sh
services=${SVDIR:-$PREFIX/var/service}
shared=$HOME/.journeyman
boot=$HOME/.termux/boot/journeyman
logs=$PREFIX/var/log/sv/journeyman
folder=$services/journeyman
[ -n "$service" ] || folder=$shared/service

need() { command -v "$1" >/dev/null 2>&1 || fail 71 "$1 is missing here" "$2"; }

look_for_tools() {
    if [ -n "$service" ]; then
        need sv "Run: pkg install termux-services.  Then close Termux and open it again."
        [ -d "$services" ] ||
            fail 71 "$services is missing: termux-services has not started yet" "Close Termux and open it again."
    fi
    if [ -n "$rootfs" ]; then
        need proot "Run: pkg install proot"
    else
        need proot-distro "Run: pkg install proot-distro && proot-distro install $distro"
    fi
    need termux-battery-status \
        "Run: pkg install termux-api.  Install the app Termux:API, too, from where Termux came from."
    need termux-wake-lock "Run: pkg install termux-tools"
    need setsid "Run: pkg install util-linux"
    need timeout "Run: pkg install coreutils"
}

# Where Termux sees the state root of the guest: each version of proot-distro has its own layout.
find_outside() {
    if [ -n "$rootfs" ]; then
        set -- "${rootfs%/}$root"
    else
        set -- "$PREFIX/var/lib/proot-distro/containers/$distro/rootfs$root" \
            "$PREFIX/var/lib/proot-distro/installed-rootfs/$distro$root" "$root"
    fi
    for outside in "$@"; do
        [ ! -f "$outside/install.json" ] || return 0
    done
    fail 78 "no agent is installed in the guest: no install.json in $1" \
        "Run in the guest: journeyman install --service termux ...  Then name its state root with --root."
}

check_guest() {
    find_outside
    grep -q '"service": "termux"' "$outside/install.json" ||
        fail 78 "the agent in the guest is not installed for Termux, and something else may keep it" \
            "Run in the guest: journeyman uninstall.  Then: journeyman install --service termux ..."
    [ -x "$outside/run-guard" ] ||
        fail 78 "$outside/run-guard is missing" "Run in the guest once more: journeyman install --service termux"
}

quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

conf() {
    echo "$header  Read by run and finish."
    for name in root outside shared rootfs distro guest_path logs every_seconds answer_seconds stop_seconds; do
        eval "value=\$$name"
        printf '%s=%s\n' "$name" "$(quoted "$value")"
    done
}

# The text of one of our files, with the sh that is here.
text_of() {
    case $1 in
    conf) conf ;;
    *) sed "1s|^#!.*/sh\$|#!$shell|" "$here/termux/$1" ;;
    esac
}

files='conf journeyman/common journeyman/sensors journeyman/run journeyman/finish journeyman/log/run'

# put TEXT-NAME FILE MODE: writes the file if it differs; returns 1 if it did not.
put() {
    if [ -f "$2" ] && [ "$(text_of "$1"; echo .)" = "$(cat "$2"; echo .)" ]; then return 1; fi
    changed=$changed$2$newline
    [ -z "$dry" ] || return 0
    mkdir -p "$(dirname "$2")" && text_of "$1" > "$2.new" && chmod "$3" "$2.new" && mv -f "$2.new" "$2" ||
        fail 71 "$2 cannot be written" "Free some space, or mend the permissions of its folder."
}

write_files() {
    changed='' fresh='' target=$folder
    # runsvdir passes over names that begin with a dot, so it never sees half a service.
    if [ ! -d "$folder" ] && [ -z "$dry" ]; then
        fresh=yes target=$(dirname "$folder")/.journeyman.new
        rm -rf "$target"
    fi
    for name in $files; do
        case $name in */run | */finish) mode=755 ;; *) mode=644 ;; esac
        put "$name" "$target/${name#journeyman/}" "$mode"
    done
    if [ -n "$fresh" ]; then
        : > "$target/started"
        mv "$target" "$folder" || fail 71 "$folder cannot be made" "Mend what the line above says."
    fi
    [ -z "$service" ] || put boot "$boot" 755
}

# The service answers once a runsv keeps it; runsvdir looks every five seconds.
until_kept() {
    looks=75
    while [ "$looks" -gt 0 ]; do
        sv status "$folder" >/dev/null 2>&1 && return 0
        sleep 0.2
        looks=$((looks - 1))
    done
    fail 71 "no runsv has taken the service up: runsvdir does not run" \
        "Run: service-daemon start, or close Termux and open it again.  Then run this once more."
}

until_beating() {
    say "waiting for the agent's heartbeat"
    looks=$((deadline * 5))
    while [ "$looks" -gt 0 ]; do
        if [ -n "$(find "$outside/run/last-beat" -newer "$folder/started" 2>/dev/null)" ]; then
            say "the agent runs, and the control plane has taken its heartbeat"
            return 0
        fi
        sleep 0.2
        looks=$((looks - 1))
    done
    fail 71 "no heartbeat was taken within $deadline s: $(tail -n 1 "$logs/current" 2>/dev/null)" \
        "See $logs/current, and run in the guest: journeyman doctor"
}

start() {
    if [ -z "$service" ]; then
        say "start it with: sh $folder/run"
        return
    fi
    until_kept
    if [ -z "$fresh" ] && [ -n "$changed" ]; then
        : > "$folder/started"
        # A run that is there already has the old files; `up` alone would leave it.
        sv -w 60 restart "$folder" >/dev/null
    fi
    sv up "$folder" >/dev/null
    until_beating
}

install() {
    look_for_tools
    check_guest
    write_files
    printf %s "$changed" | while IFS= read -r path; do
        if [ -n "$dry" ]; then say "would write $path"; else say "wrote $path"; fi
    done
    if [ -n "$dry" ]; then
        [ -z "$service" ] || say "would run: sv restart $folder"
        return
    fi
    [ -n "$changed" ] || say "nothing to write: all is as it has to be"
    case $(timeout -s KILL "$answer_seconds" termux-battery-status 2>/dev/null) in
    '{'*) ;;
    *) say "warning: Termux:API gives no answer; without it the agent takes no work.  Is the app installed?" ;;
    esac
    start
    [ -z "$service" ] ||
        say "it starts after a boot if the app Termux:Boot is installed and was opened once, else with Termux"
}

is_ours() { [ -f "$1" ] && grep -qF "$header" "$1"; }

uninstall() {
    is_ours "$folder/run" || fail 78 "there is no service of ours in $folder" "Was it installed with --no-service?"
    if [ -n "$dry" ]; then
        say "would stop and remove $folder, $boot and $shared"
        return
    fi
    if [ -n "$service" ]; then
        gone=$services/.journeyman.gone
        rm -rf "$gone"
        # First out of sight, or runsvdir would start another runsv for it.
        mv "$folder" "$gone" && sv -w 60 force-shutdown "$gone" >/dev/null
        rm -rf "$gone"
        ! is_ours "$boot" || rm -f "$boot"
    elif [ -f "$shared/keeper" ] && kill -0 "$(cut -d' ' -f1 "$shared/keeper")" 2>/dev/null; then
        fail 71 "it runs" "Stop it first: kill $(cut -d' ' -f1 "$shared/keeper")"
    fi
    rm -rf "$shared"
    say "removed.  The guest keeps its files; run there: journeyman uninstall"
}

"$action"
