#!/usr/bin/env bash
# soundfile 0.14.0 (libsndfile 1.2.2): after a seek in an MP3 file, up to thousands of samples are others than those that
# reading from the beginning gives at these places, without an error. Cure: read from the beginning and leave out what
# comes before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q soundfile==0.14.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import numpy as np
import soundfile

print("soundfile", soundfile.__version__, soundfile.__libsndfile_version__)
sound = np.stack([np.sin(np.arange(30_000) * tone) * 0.5 for tone in (0.06, 0.09)], 1)
soundfile.write("a.mp3", sound, 44100)
whole, _ = soundfile.read("a.mp3")
for place in (1000, 5000, 13230):
    with soundfile.SoundFile("a.mp3") as file:
        file.seek(place)
        found = file.read(3000)
    far = np.abs(found - whole[place : place + 3000]).max(axis=1)
    print(f"from sample {place}: {np.count_nonzero(far > 1e-3)} samples differ, by up to {far.max():.2f}")
    assert place == 1000 or far.max() > 0.1, "the samples are the same"
EOF
