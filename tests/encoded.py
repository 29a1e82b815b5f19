"""Small H.264 files whose streams, clocks, rotation and shape of pixels are chosen."""

from fractions import Fraction

import av
import numpy as np


def gradient(count, height=48, width=64):
    """A smooth picture whose brightness tells the frame: mean of frame k is about 40 + 8 k."""
    ramp = np.linspace(0, 30, width)[None, :, None] + np.zeros((height, 1, 3))
    return np.stack([(ramp + 25 + 8 * k).clip(0, 255).astype(np.uint8) for k in range(count)])


def encode(path, streams, *, times=None, rotation=None, audio=False, options=None, aspect=None):
    """Write H.264 with one stream for each array in ``streams``; ``times`` in milliseconds."""
    with av.open(str(path), "w", options=options or {}) as container:
        made = []
        for frames, rate in streams:
            stream = container.add_stream("libx264", rate=rate, options={"crf": "10"})
            stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
            if aspect:
                stream.codec_context.sample_aspect_ratio = aspect
            if times:
                stream.codec_context.time_base = Fraction(1, 1000)
            if rotation is not None:
                stream.set_display_rotation(rotation)
            made.append(stream)
        if audio:
            sound = container.add_stream("aac", rate=16000)
        for stream, (frames, rate) in zip(made, streams, strict=True):
            for index, picture in enumerate(frames):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = (times[index], Fraction(1, 1000)) if times else (index, Fraction(1, rate))
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        if audio:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), format="fltp", layout="mono")
            silence.rate = 16000
            container.mux(sound.encode(silence))
            container.mux(sound.encode(None))
    return path
