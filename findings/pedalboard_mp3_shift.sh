#!/usr/bin/env bash
# pedalboard 0.9.26: `AudioFile` gives the samples of an MP3 file 1105 later than they were written, and 2208 more of
# them, without an error: the delay of the encoder, which the file states, is not taken off. soundfile 0.14.0 and PyAV
# 18.1.0 give the samples where they were. So labels of times, and features of both readers, do not fit each other: 25
# ms at 44.1 kHz. WAV, FLAC and Ogg are right. Cure: read MP3 with soundfile, from the beginning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pedalboard==0.9.26 soundfile==0.14.0 av==18.1.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import av
import numpy as np
import pedalboard
import soundfile
from pedalboard.io import AudioFile

print("pedalboard", pedalboard.__version__, "soundfile", soundfile.__version__, "av", av.__version__)
sound = np.sin(np.arange(60_000) * 0.06) * 0.05
sound[30_000] = 0.9
found = {}
for name in ("wav", "flac", "ogg", "mp3"):
    soundfile.write(f"a.{name}", sound, 44100)
    with AudioFile(f"a.{name}") as file:
        by_pedalboard = file.read(file.frames)[0]
    by_soundfile, _ = soundfile.read(f"a.{name}")
    with av.open(f"a.{name}") as container:
        by_av = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
    readers = {"pedalboard": by_pedalboard, "soundfile": by_soundfile, "av": by_av}
    found[name] = {reader: (len(samples), int(samples.argmax())) for reader, samples in readers.items()}
    print(name, "samples and place of the peak:", found[name])
assert all(found[name]["pedalboard"] == (60_000, 30_000) for name in ("wav", "flac", "ogg"))
assert found["mp3"]["soundfile"] == found["mp3"]["av"] == (60_000, 30_000)
assert found["mp3"]["pedalboard"] == (62_208, 31_105), "it has changed"
PYTHON
