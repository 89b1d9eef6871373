#!/usr/bin/env bash
# The browser tests run in the Chromium on the PATH. Where there is none, install Debian's if this user may;
# elsewhere say so and let those tests skip.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "No Chromium on the PATH: installing Debian's for the browser tests."
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; then
        exit 0
    fi
fi

echo "No Chromium found and none could be installed: the browser tests will be skipped." >&2
echo "Install Chromium (Debian, Ubuntu: sudo apt-get install chromium) to run them." >&2
